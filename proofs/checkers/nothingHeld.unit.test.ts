import { expect, test } from 'vitest'
import { nothingHeld } from './nothingHeld.ts'
import { entry, found, historyOf, holder } from './plantedHistory.ts'

test('accepts released locks and other state', () => {
  const history = historyOf(
    holder('w1', 'a', 'held:K', [1, 2]),
    found('wallet', 3),
    found('effect:held:K', undefined, 'a'),
    found('connections:w1', 0),
  )
  expect(nothingHeld.check(history)).toEqual([])
})

test('reports anything that is still held', () => {
  const history = historyOf(
    found('held:advisory lock 1234'),
    found('held:lease Instance:4', undefined, 'a'),
    entry(9, 'database', '', 'found', 'held:transaction of pid 77', { note: 'idle for 3 s' }),
  )
  expect(nothingHeld.check(history)).toMatchObject([
    { key: 'held:transaction of pid 77', text: 'transaction of pid 77 is still held when all is quiet: idle for 3 s' },
    { text: 'advisory lock 1234 is still held when all is quiet', ops: [] },
    { text: 'lease Instance:4 is still held when all is quiet', ops: ['a'], invariant: 'nothing left held' },
  ])
})
