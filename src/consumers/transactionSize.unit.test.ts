import { expect, test } from 'vitest'
import { TransactionSize } from './transactionSize.ts'

/** The size that it settles at, where an event and a transaction take so long. */
function settled({ most = 1000, eventMs, otherMs }: { most?: number; eventMs: number; otherMs: number }): number {
  const size = new TransactionSize(most)
  for (let round = 0; round < 200; round++) size.learn(size.now, otherMs + size.now * eventMs, size.now * eventMs)
  return size.now
}

test('gives the handlers of a transaction about 100 ms', () => {
  expect(settled({ eventMs: 1, otherMs: 5 })).toBe(100)
  expect(settled({ eventMs: 200, otherMs: 5 })).toBe(1)
  expect(settled({ eventMs: 0, otherMs: 5, most: 100 })).toBe(100)
})

// Once: what a transaction takes beside its handlers was counted as theirs. On an overloaded server each had one event, and a job cost a COMMIT.
test('does not make transactions smaller because the server is slow', () => {
  expect(settled({ eventMs: 1, otherMs: 90 })).toBe(100)
  expect(settled({ eventMs: 1, otherMs: 300 })).toBe(300)
  expect(settled({ eventMs: 1, otherMs: 5000 })).toBe(400)
})

test('doubles at most', () => {
  const size = new TransactionSize(1000)
  const sizes = Array.from({ length: 4 }, () => {
    size.learn(size.now, 1, 0.1)
    return size.now
  })
  expect(sizes).toEqual([16, 32, 64, 128])
})
