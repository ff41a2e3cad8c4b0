import { expect, test } from 'vitest'
import { soak } from './soak.ts'

// Too short for a trend: `trend.unit.test.ts` has that, and `npm run soak` judges by it.
test('all modules work through killed sessions, killed processes and a restart, and nothing is lost', async () => {
  const { goals, faults, samples } = await soak({ minutes: 0.1, seed: 1 }, () => undefined)
  const broken = goals.filter(({ name, holds }) => !holds && /^(broken promises|parts that did no work)$/.test(name))
  expect(broken).toEqual([])
  expect(Object.values(faults).every((count) => count > 0)).toBe(true)
  expect(samples.at(-1)?.heapBytes).toHaveLength(2)
})
