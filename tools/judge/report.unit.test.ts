import { describe, expect, test } from 'vitest'
import { EXIT_STATUS, evidence, goal, verdictOf } from './report.ts'

describe('the verdict', () => {
  const kept = goal('violations', 0, '=', 0)
  const broken = goal('violations', 1, '=', 0)
  const shown = evidence('naive form caught', 1, '>=', 1)
  const notShown = evidence('naive form caught', 0, '>=', 1)

  test.each([
    ['holds', [kept, shown], 0],
    ['inconclusive', [kept, notShown], 3],
    ['violated', [broken, shown], 1],
    ['violated', [broken, notShown], 1],
  ] as const)('is %s', (verdict, goals, status) => {
    expect([verdictOf(goals), EXIT_STATUS[verdictOf(goals)]]).toEqual([verdict, status])
  })
})
