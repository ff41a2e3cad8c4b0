import { expect, test } from 'vitest'
import { dispatching } from '../../tools/server/testing/dispatching.ts'
import { testBench } from '../../tools/server/testing/workbench.ts'
import type { Transaction } from '../index.ts'

/** Snapshots on the way, by which a backlog is read in pieces. */

const bench = await testBench()

/** As a trigger does it: with its number at once. */
const enqueueNow = (tx: Transaction, key: string): Promise<unknown> =>
  tx.query(`SELECT lockstep.enqueue('trades', $1, '{}')`, [key])

test('delivers a writer that records a tick and continues after what was committed in between', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const another = bench.open('pg').lockstep
  // The next event makes a tick.
  await bench.admin.query(`SELECT setval('lockstep.outbox_ids', 999)`)
  await lockstep.transaction({}, async (tx) => {
    await tx.query('SELECT pg_current_xact_id()')
    // A transaction with a larger id ends: from now on this transaction lies inside every snapshot, as one in progress.
    await bench.admin.query('SELECT pg_current_xact_id()')
    await enqueueNow(tx, 'a')
    await another.transaction({}, (other) => enqueueNow(other, 'b'))
    await enqueueNow(tx, 'b')
  })
  const { rows } = await bench.admin.query<{ ticks: number }>(
    'SELECT count(*)::int AS ticks FROM lockstep.outbox_ticks WHERE id = 1000',
  )
  expect(rows[0]?.ticks).toBe(1)
  const run = dispatching(lockstep, { shards: 1, batch: 100 })
  await run.until(3)
  await run.stop()
  expect(run.delivered.filter((each) => each.startsWith('trades/b#'))).toEqual(['trades/b#1', 'trades/b#2'])
})
