import { expect, test } from 'vitest'
import { StreamOrderChecker } from './streamOrder.ts'

/** The checker finds what is planted. */

function seen(...arrivals: [key: string, seq: number, uuid?: string][]): StreamOrderChecker {
  const checker = new StreamOrderChecker()
  for (const [key, seq, uuid = `${key} ${seq}`] of arrivals) checker.see({ key, seq, uuid, mark: `${key} ${seq}` })
  return checker
}

test('streams in order, with something delivered again, are right', () => {
  const report = seen(['a', 1], ['b', 1], ['a', 2], ['a', 1], ['a', 2], ['a', 3]).report()
  expect(report).toMatchObject({ deliveries: 6, events: 4, duplicates: 2, violations: 0, diverged: 0 })
})

test.each<[string, [string, number, string?][]]>([
  [
    'an inversion',
    [
      ['a', 2],
      ['a', 1],
    ],
  ],
  [
    'a gap',
    [
      ['a', 1],
      ['a', 3],
    ],
  ],
  ['a stream that does not begin at 1', [['a', 2]]],
])('%s is found', (_, arrivals) => {
  expect(seen(...arrivals).report().violations).toBe(1)
})

test('a number with two ids is found', () => {
  expect(seen(['a', 1, 'one'], ['a', 1, 'other']).report().diverged).toBe(1)
  expect(seen(['a', 3, 'one'], ['a', 3, 'other']).report().diverged).toBe(1)
})

test('what is missing, and what should not have come', () => {
  const checker = seen(['a', 1], ['a', 2])
  expect(checker.missing(['a 1', 'a 3'])).toBe(1)
  expect(checker.arrived(['a 2', 'a 3'])).toBe(1)
})
