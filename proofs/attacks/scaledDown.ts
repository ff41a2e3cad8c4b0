import { expect, test } from 'vitest'
import { random } from '../seed.ts'
import type { Attack } from './attack.ts'

const SEED = 1

/** Goals about time and load: the full size judges them, on a machine that has nothing else to do. */
const ABOUT_SPEED = /, (?:ms|percent)$/

/** An attack at the size that ends within seconds: the same code, so that both can fail. */
export function attackScaledDown(attack: Attack): void {
  test(attack.about, { timeout: 480_000 }, async () => {
    const { results, goals } = await attack.run('small', () => undefined, random(SEED, attack.name))
    expect(results.length).toBeGreaterThan(0)
    expect(goals.filter(({ name, holds }) => !holds && !ABOUT_SPEED.test(name))).toEqual([])
  })
}
