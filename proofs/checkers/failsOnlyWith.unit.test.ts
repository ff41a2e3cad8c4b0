import { expect, test } from 'vitest'
import { failsOnlyWith } from './failsOnlyWith.ts'
import { historyOf, operation, texts } from './plantedHistory.ts'

test('reports a failure for another reason, and no other outcome', () => {
  const history = historyOf(
    operation('w1', 'a', 'K', [0, 1], 'failed', { note: 'INSUFFICIENT FUNDS: K has 3' }),
    operation('w1', 'b', 'K', [0, 1], 'unknown', { note: 'LOCKSTEP_COMMIT_OUTCOME_UNKNOWN' }),
    operation('w1', 'c', 'K', [0, 1], 'failed', { note: 'LOCKSTEP_CONNECTION_LOST' }),
  )
  expect(texts(failsOnlyWith('INSUFFICIENT FUNDS').check(history))).toEqual([
    'w1 (c) failed at K for another reason: LOCKSTEP_CONNECTION_LOST',
  ])
})
