import { beforeEach, expect, test } from 'vitest'
import { failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import { DispatcherRemovedError, type Lockstep } from '../index.ts'

/** A dispatcher that an operator removes while a process of that name is stopped (SIGSTOP, a frozen virtual machine), and then continues. */

const bench = await testBench()

/** The process was stopped for so long that its leases are over. */
const EXPIRE = `UPDATE lockstep.leases SET expires_at = clock_timestamp() WHERE name LIKE 'Outbox:%'`
const REMOVE = `SELECT lockstep.outbox_remove('default', 'nobody runs it') AS answer`
const CURSORS = 'SELECT FROM lockstep.outbox_cursors'

beforeEach(() =>
  bench.admin.query('TRUNCATE lockstep.outbox_events, lockstep.outbox_dispatchers, lockstep.outbox_cursors'),
)

/** A dispatcher that has delivered three events. */
async function delivered(lockstep: Lockstep, shards: number): Promise<{ names: string[]; ended: Promise<unknown> }> {
  const names: string[] = []
  const ended = failureOf(
    lockstep.outbox
      .dispatcher({
        shards,
        ttlMs: 1000,
        retainMs: false,
        sink: (events) => void names.push(...events.map(({ id }) => id)),
      })
      .run(),
  )
  for (let n = 0; n < 3; n++) await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 't', key: 'a', payload: n }))
  await expect.poll(() => names.length).toBe(3)
  return { names, ended }
}

test('ends run() with an error, without sending again', async () => {
  const { names, ended } = await delivered(bench.open('pg').lockstep, 2)
  await bench.admin.query(`BEGIN; ${EXPIRE}; ${REMOVE}; COMMIT`)
  expect(await ended).toBeInstanceOf(DispatcherRemovedError)
  expect(names).toHaveLength(3)
  expect((await bench.admin.query(CURSORS)).rowCount).toBe(0)
})

test('does not join one that was registered again with another number of shards', async () => {
  const { names, ended } = await delivered(bench.open('pg').lockstep, 2)
  await bench.admin.query(`BEGIN; ${EXPIRE}; ${REMOVE};
    INSERT INTO lockstep.outbox_dispatchers (name, shards, system, database, timeline)
    SELECT 'default', 4, system::text, database::text, 1 FROM lockstep.ensure_incarnation();
    COMMIT`)
  expect(await ended).toBeInstanceOf(DispatcherRemovedError)
  expect(names).toHaveLength(3)
})

/** The late move has read its cursor, and has not committed. A removal that does not see it would leave a cursor behind. */
test('leaves no cursor that is moved during the removal', async () => {
  await bench.admin.query(`
    INSERT INTO lockstep.outbox_dispatchers (name, shards, system, database, timeline)
    SELECT 'default', 1, system::text, database::text, 1 FROM lockstep.ensure_incarnation();
    SELECT lockstep.outbox_take('default', 0::smallint, 1, value::text, 1) FROM lockstep.incarnation`)
  const late = await bench.admin.connect()
  await late.query('BEGIN')
  await late.query(`SELECT lockstep.outbox_move('default', '{0}', '{1}', '{1}', ARRAY[value::text], ARRAY['5:5:']::pg_snapshot[],
    ARRAY['5:5:']::pg_snapshot[], '{0}', '{true}', '{0}') FROM lockstep.incarnation`)
  let done = false
  const removing = bench.admin.query(REMOVE).finally(() => (done = true))
  const waits = `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%outbox_remove%'`
  await expect.poll(async () => done || (await bench.admin.query(waits)).rowCount === 1).toBe(true)
  await late.query('COMMIT')
  late.release()
  expect((await removing).rows).toEqual([{ answer: 'done' }])
  expect((await bench.admin.query(CURSORS)).rowCount).toBe(0)
})
