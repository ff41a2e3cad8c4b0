import { expect, test } from 'vitest'
import { noConnectionLeaked } from './noConnectionLeaked.ts'
import { found, historyOf } from './plantedHistory.ts'

test('accepts pools with all connections returned, and other state', () => {
  const history = historyOf(found('connections:w1', 0), found("connections:w2'", 0), found('wallet', 7))
  expect(noConnectionLeaked.check(history)).toEqual([])
})

test('reports connections that were not returned', () => {
  expect(noConnectionLeaked.check(historyOf(found('connections:w1', 1), found("connections:w2'", 2)))).toMatchObject([
    { text: 'w1 has 1 connection that did not come back to the pool', invariant: 'no connection leaked' },
    { text: "w2' has 2 connections that did not come back to the pool", key: "connections:w2'" },
  ])
})

test('rejects a worker without a count', () => {
  expect(() => noConnectionLeaked.check(historyOf(found('connections:w1')))).toThrow('has to carry a number')
})
