import { beforeEach, expect, test } from 'vitest'
import { leakGuard, testDatabase } from '../../tools/server/testDatabase.ts'
import { failureOf, workbench } from '../../tools/server/testing/workbench.ts'
import { DispatcherRemoved, type Lockstep } from '../index.ts'

/** A dispatcher that an operator removes while a process of that name is stopped (SIGSTOP, a frozen virtual machine), and then goes on. */

const database = await testDatabase()
leakGuard(database)
const bench = workbench(database)
const SOON = { interval: 10, timeout: 15_000 }

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
    lockstep
      .dispatcher({
        shards,
        ttlMs: 1000,
        retainMs: false,
        sink: (events) => void names.push(...events.map(({ id }) => id)),
      })
      .run(),
  )
  for (let n = 0; n < 3; n++) await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 't', key: 'a', payload: n }))
  await expect.poll(() => names.length, SOON).toBe(3)
  return { names, ended }
}

test('sends nothing again and makes no cursors: run() ends with an error', async () => {
  const { names, ended } = await delivered(bench.open('pg').lockstep, 2)
  await bench.admin.query(`BEGIN; ${EXPIRE}; ${REMOVE}; COMMIT`)
  expect(await ended).toBeInstanceOf(DispatcherRemoved)
  expect(names).toHaveLength(3)
  expect((await bench.admin.query(CURSORS)).rowCount).toBe(0)
})

test('does not join one that was registered again with another number of shards', async () => {
  const { names, ended } = await delivered(bench.open('pg').lockstep, 2)
  await bench.admin.query(`BEGIN; ${EXPIRE}; ${REMOVE};
    INSERT INTO lockstep.outbox_dispatchers (name, shards, system, database, timeline)
    SELECT 'default', 4, system::text, database::text, 1 FROM lockstep.ensure_incarnation();
    COMMIT`)
  expect(await ended).toBeInstanceOf(DispatcherRemoved)
  expect(names).toHaveLength(3)
})
