import { expect, test } from 'vitest'
import { noDeadlock, noSerializationFailure } from './noServerError.ts'
import { entry, historyOf, operation } from './plantedHistory.ts'

test('accepts other errors, and a deadlock that was reported and survived', () => {
  const history = historyOf(
    operation('w1', 'a', 'K', [0, 1], 'done', { note: '40P01 on the first try' }),
    operation('w1', 'b', 'K', [0, 1], 'failed', { note: '40001 could not serialize access' }),
    operation('w1', 'c', 'K', [0, 1], 'unknown', { note: '57P01 terminating connection, not 40P01' }),
    operation('w1', 'd', 'K', [0, 1], 'failed'),
    entry(1, 'w1', 'e', 'read', 'K', { note: '40P01' }),
  )
  expect(noDeadlock.check(history)).toEqual([])
})

test.each(['failed', 'unknown'] as const)('reports a deadlock that ended in %s', (end) => {
  const history = historyOf(operation('w1', 'a', 'A > B', [0, 1], end, { note: '40P01 deadlock detected' }))
  expect(noDeadlock.check(history)).toEqual([
    {
      invariant: 'no deadlock',
      scenario: 'made up',
      key: 'A > B',
      text: 'w1 (a) was ended by the server at A > B, in a deadlock: 40P01 deadlock detected',
      ops: ['a'],
      at: 1000,
    },
  ])
})

test('reports a deadlock that caused another error', () => {
  const note = 'RETRIES_EXHAUSTED gave up after 5 tries (40P01 deadlock detected)'
  expect(noDeadlock.check(historyOf(operation('w1', 'a', 'K', [0, 1], 'failed', { note })))).toHaveLength(1)
})

test('reports a serialization failure, also a retried one, and no deadlock', () => {
  const history = historyOf(
    operation('w1', 'a', 'K', [0, 1], 'unknown', { note: '40001 could not serialize access' }),
    entry(2, 'w2', '', 'failed', 'K', { note: '40001, tried again' }),
    operation('w3', 'c', 'K', [0, 1], 'failed', { note: '40P01 deadlock detected' }),
  )
  expect(noSerializationFailure.check(history)).toMatchObject([
    {
      invariant: 'no serialization failure',
      ops: ['a'],
      text: expect.stringMatching(/^w1 \(a\) was ended by the server at K/),
    },
    { ops: [], text: 'w2 was ended by the server at K, because of what it had read: 40001, tried again' },
  ])
})
