import { expect, test } from 'vitest'
import { neverBelowZero } from './neverBelowZero.ts'
import { found, historyOf, operation, texts } from './plantedHistory.ts'

test('accepts balances of zero and above', () => {
  const bid = operation('w1', 'op 1', 'wallet', [1, 2], 'done', { value: 0 })
  expect(neverBelowZero.check(historyOf(bid, found('wallet', 0), found('effect:wallet', -5, 'op 1')))).toEqual([])
})

test('reports an operation that left less than nothing, and a wallet that stands there', () => {
  const bid = operation('w1', 'op 1', 'wallet', [1, 2], 'done', { value: -5 })
  expect(texts(neverBelowZero.check(historyOf(bid, found('wallet', -5))))).toEqual([
    'w1 (op 1) was acknowledged and left wallet at -5',
    'wallet stands at -5',
  ])
})

test('believes either of an operation without an answer', () => {
  const bid = operation('w1', 'op 1', 'wallet', [1, 2], 'unknown', { value: -5 })
  expect(neverBelowZero.check(historyOf(bid))).toEqual([])
})
