import pg from 'pg'
import postgres from 'postgres'
import { describe, expect, test } from 'vitest'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, type DriverName } from '../../tools/server/testing/workbench.ts'
import { Lockstep } from '../index.ts'

/** Settings that an administrator has given to the role of the application. */

const bench = await outboxBench()

/** A Lockstep whose sessions have settings of their own, as a role's would be. */
function withSettings(driver: DriverName, settings: Record<string, string>, url = bench.url): Lockstep {
  if (driver === 'pg') {
    const options = Object.entries(settings).map(([name, value]) => `-c ${name}=${value.replaceAll(' ', '\\ ')}`)
    const pool = new pg.Pool({ connectionString: url, max: 4, options: options.join(' ') })
    bench.cleanUp(() => pool.end())
    const lockstep = new Lockstep(pool)
    bench.cleanUp(() => lockstep.close())
    return lockstep
  }
  const sql = postgres(url, { max: 4, connection: settings, onnotice: () => undefined })
  bench.cleanUp(() => sql.end({ timeout: 0.1 }))
  const lockstep = new Lockstep(sql)
  bench.cleanUp(() => lockstep.close())
  return lockstep
}

const trade = (key: string, payload: unknown = 1): { topic: string; key: string; payload: unknown } => {
  return { topic: 'trades', key, payload }
}

describe.each(DRIVERS)('settings of the role, %s', (driver) => {
  // The database's default is REPEATABLE READ. 1. A dispatcher copies an event of a stream that waits (its transaction is open).
  // 2. outbox.erase(): its snapshot is taken, then it waits for the copy to be done. 3. The copy is committed. 4. erase() continues with a
  // snapshot in which there is no copy: it says that it is done, and the payload is still in outbox_parked_events, and is delivered.
  test('erase a payload that is copied at the same time at REPEATABLE READ', async () => {
    const lockstep = withSettings(driver, { default_transaction_isolation: 'repeatable read' })
    await bench.open('pg').lockstep.transaction({}, (tx) => tx.enqueue(trade('a', 'secret')))
    const other = await bench.session()
    await other.query(`BEGIN;
      LOCK TABLE lockstep.outbox_parked_events IN ROW EXCLUSIVE MODE;
      INSERT INTO lockstep.outbox_parked_events
      SELECT 'default', e.stream, e.seq, e.id, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, NULL
        FROM lockstep.outbox_events e`)
    const erasing = lockstep.outbox.erase({ topic: 'trades', key: 'a' }, { reason: 'on request' })
    await bench.lockWaits(1)
    await other.query('COMMIT')
    await erasing
    const { rows } = await bench.admin.query('SELECT payload, tombstone FROM lockstep.outbox_parked_events')
    expect(rows).toEqual([{ payload: null, tombstone: 'erased' }])
  })

  // '\x00'::bytea in the body of an SQL function is read with the session's setting: there \x00 is a zero.
  test('deliver keys with standard_conforming_strings = off', async () => {
    const lockstep = withSettings(driver, { standard_conforming_strings: 'off', escape_string_warning: 'off' })
    const running = bench.dispatch(lockstep)
    await lockstep.transaction({}, (tx) => tx.enqueue(trade("it's \\ a")))
    await running.until(1)
    expect(running.delivered).toEqual(["trades/it's \\ a#1"])
  })

  test.each([
    { default_transaction_isolation: 'serializable' },
    { default_transaction_isolation: 'repeatable read' },
    { statement_timeout: '2000', lock_timeout: '1000', idle_in_transaction_session_timeout: '1000' },
    { search_path: 'nowhere' },
    { enable_indexscan: 'off', enable_bitmapscan: 'off' },
    { plan_cache_mode: 'force_generic_plan' },
  ])('deliver events with %o', (settings) => comesThrough(driver, settings))

  // The time is parsed by the driver, which knows the ISO form alone: 1970 with pg, an invalid Date with postgres.js.
  test.each([{ DateStyle: 'German' }, { DateStyle: 'SQL, DMY' }])('deliver times with %o', (settings) =>
    comesThrough(driver, settings),
  )

  // postgres.js decodes the value as hex: the sink gets one byte of six and answers 'sent', and nothing reports it.
  test('deliver bytes with bytea_output = escape', () => comesThrough(driver, { bytea_output: 'escape' }))
})

async function comesThrough(driver: DriverName, settings: object): Promise<void> {
  const lockstep = withSettings(driver, settings as Record<string, string>)
  let refused = false
  const running = bench.dispatch(lockstep, {
    sink(batch) {
      const answers = batch.map(({ key }) => (key === 'a' && !refused ? { refused: 'once' } : ('sent' as const)))
      refused ||= batch.some(({ key }) => key === 'a')
      return Promise.resolve(answers)
    },
  })
  const bytes = Buffer.from([0, 1, 92, 39, 200, 255])
  const before = Date.now()
  const plain = bench.open('pg').lockstep
  await plain.transaction({}, (tx) => tx.enqueueMany([trade('a'), trade('b', bytes), trade('a'), trade('c')]))
  await running.until(4)
  expect(running.delivered.toSorted()).toEqual(['trades/a#1', 'trades/a#2', 'trades/b#1', 'trades/c#1'])
  const event = running.events.find(({ key }) => key === 'b')
  expect(event?.payload).toEqual(bytes)
  // However long it took: a time that was read wrong is hours off.
  const enqueuedAt = event?.enqueuedAt.getTime() ?? 0
  expect(enqueuedAt).toBeGreaterThan(before - 60_000)
  expect(enqueuedAt).toBeLessThan(Date.now() + 60_000)
}
