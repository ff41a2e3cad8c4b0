import { expect, test } from 'vitest'
import type { Attack } from './attack.ts'

/** An attack at the size that ends within seconds: the same code, so that both can fail. */
export function attackInSmall(attack: Attack): void {
  test(attack.about, { timeout: 480_000 }, async () => {
    const { results, goals } = await attack.run('small', () => undefined)
    expect(results.length).toBeGreaterThan(0)
    expect(goals.filter((goal) => !goal.holds)).toEqual([])
  })
}
