import { expect, test } from 'vitest'
import { locks } from './locks.ts'

/** Times are no business of a test; that the bench runs, and what it counts, is. */
test('bench locks measures every driver and isolation, and counts two round trips', { timeout: 120_000 }, async () => {
  const { results, goals } = await locks.run('smoke', () => undefined)
  expect(results).toHaveLength(8)
  for (const row of results) expect(row['ratio']).toBeGreaterThan(0)
  const counted = goals.filter((goal) => goal.name.includes('round trips'))
  expect(counted).toHaveLength(4)
  expect(counted.filter((goal) => !goal.holds)).toEqual([])
})
