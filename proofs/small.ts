import { expect, test } from 'vitest'
import type { Scenario } from './scenario.ts'

/** An attack at the size that ends within seconds: the same code, so that both can fail. */
export function attackInSmall(scenario: Scenario): void {
  test(scenario.about, { timeout: 180_000 }, async () => {
    const { results, goals } = await scenario.run('small', () => undefined)
    expect(results.length).toBeGreaterThan(0)
    expect(goals.filter((goal) => !goal.holds)).toEqual([])
  })
}
