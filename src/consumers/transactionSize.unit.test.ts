import { expect, test } from 'vitest'
import { TransactionSize } from './transactionSize.ts'

/** After many transactions of this handler, on a server that takes so long for the rest. */
function settled(most: number, eachMs: number, restMs: number): number {
  const size = new TransactionSize(most)
  for (let n = 0; n < 50; n++) size.learn(size.now, size.now * eachMs, restMs)
  return size.now
}

test('doubles the events of a transaction, up to the limit', () => {
  const size = new TransactionSize(100)
  const sizes = [size.now]
  for (let n = 0; n < 5; n++) {
    size.learn(size.now, 0.1, 1)
    sizes.push(size.now)
  }
  expect(sizes).toEqual([8, 16, 32, 64, 100, 100])
})

test('gives handlers that take long a transaction each, and quick ones about 100 ms together', () => {
  expect(settled(100, 200, 5)).toBe(1)
  expect(settled(100, 10, 5)).toBe(10)
  expect(settled(100, 0.1, 5)).toBe(100)
})

test('has no fewer events where BEGIN and COMMIT take long', () => {
  expect(settled(100, 0.1, 500)).toBe(100)
  expect(settled(1000, 1, 500)).toBeGreaterThanOrEqual(490)
  expect(settled(1000, 10, 60_000)).toBe(100)
})
