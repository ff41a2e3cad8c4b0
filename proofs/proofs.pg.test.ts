import { describe, expect, test } from 'vitest'
import { scenarios } from './scenarios/index.ts'

/** The attacks at the size that ends within seconds: the same code, so that both can fail. */
describe.each(Object.values(scenarios).filter(({ needsBuild }) => needsBuild !== true))('attack $name', (scenario) => {
  test(scenario.about, { timeout: 180_000 }, async () => {
    const { results, goals } = await scenario.run('small', () => undefined)
    expect(results.length).toBeGreaterThan(0)
    expect(goals.filter((goal) => !goal.holds)).toEqual([])
  })
})
