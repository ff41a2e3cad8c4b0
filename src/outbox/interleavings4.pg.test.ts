import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import postgres from 'postgres'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { leakGuard, testDatabase } from '../../tools/server/testDatabase.ts'
import { type Dispatching, dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { DRIVERS, type DriverName, workbench } from '../../tools/server/testing/workbench.ts'
import { Lockstep } from '../index.ts'

/** Interleavings of parked streams with operators, of roles with settings of their own, and of small pools. */

const database = await testDatabase()
leakGuard(database)
const bench = workbench(database)
const SOON = { interval: 10, timeout: 5000 }
const EMPTY = `
  TRUNCATE lockstep.outbox_events, lockstep.outbox_quiet, lockstep.outbox_ticks, lockstep.outbox_dispatchers, lockstep.outbox_cursors,
           lockstep.outbox_parked, lockstep.outbox_parked_events, lockstep.outbox_dead, lockstep.outbox_audit, lockstep.outbox_segments;
  SELECT setval('lockstep.outbox_slot', 0);
  INSERT INTO lockstep.outbox_segments VALUES (0, 1, clock_timestamp())`

let ends: (() => unknown)[] = []
beforeEach(() => bench.admin.query(EMPTY))
afterEach(async () => {
  const ending = ends.toReversed()
  ends = []
  for (const end of ending) await end()
})

async function session(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: database.url })
  await client.connect()
  ends.push(() => client.end())
  return client
}

function dispatch(lockstep: Lockstep, options: Parameters<typeof dispatching>[1] = {}): Dispatching {
  const running = dispatching(lockstep, { shards: 1, retainMs: false, ...options })
  ends.push(() => running.stop())
  return running
}

/** A Lockstep whose sessions have settings of their own, as a role's would be. */
function withSettings(driver: DriverName, settings: Record<string, string>, url = database.url): Lockstep {
  if (driver === 'pg') {
    const options = Object.entries(settings).map(([name, value]) => `-c ${name}=${value.replaceAll(' ', '\\ ')}`)
    const pool = new pg.Pool({ connectionString: url, max: 4, options: options.join(' ') })
    ends.push(() => pool.end())
    const lockstep = new Lockstep(pool)
    ends.push(() => lockstep.close())
    return lockstep
  }
  const sql = postgres(url, { max: 4, connection: settings, onnotice: () => undefined })
  ends.push(() => sql.end({ timeout: 0.1 }))
  const lockstep = new Lockstep(sql)
  ends.push(() => lockstep.close())
  return lockstep
}

const lockWaits = async (): Promise<number> => {
  const { rows } = await bench.admin.query<{ n: number }>(
    `SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
  )
  return rows[0]?.n ?? -1
}

const trade = (key: string, payload: unknown = 1): { topic: string; key: string; payload: unknown } => {
  return { topic: 'trades', key, payload }
}

describe('parked streams', () => {
  // outbox_parked_tried() deletes the events that were sent, then updates their stream's row; outbox_operate() locks the stream's row,
  // then updates its first event. 1. a#1 is parked; its next try is under way. 2. An operator skips a#1: it waits for the stream's row,
  // which somebody else has for a moment. 3. The try gets through; outbox_parked_tried() deletes a#1 and waits for the row as well.
  // 4. The row is let go: the operator gets it, still sees a#1 at the head, and waits for the deletion: deadlock. The victim is whoever's
  // deadlock_timeout ends first: the operator gets 40P01 instead of "not at the head"; or what was sent is not noted, silently.
  test('a skip while the event at the head gets through', async () => {
    const { lockstep } = bench.open('pg')
    let [tries, go] = [0, (): void => undefined]
    const mayGo = new Promise<void>((resolve) => (go = resolve))
    const running = dispatch(lockstep, {
      async sink(batch) {
        if (batch[0]?.tombstone !== undefined) return batch.map(() => 'sent' as const)
        if (tries++ === 0) return batch.map(() => ({ refused: 'not yet' }))
        if (tries === 2) await mayGo
        return batch.map(() => 'sent' as const)
      },
    })
    await lockstep.transaction({}, (tx) => tx.enqueue(trade('a')))
    ends.push(() => go())
    await eventually(() => tries === 2)
    const other = await session()
    await other.query('BEGIN; SELECT FROM lockstep.outbox_parked FOR UPDATE')
    const skipping = lockstep.outbox.skip({ topic: 'trades', key: 'a', seq: 1 }, { reason: 'it is bad' }).then(
      () => 'skipped',
      (error: unknown) => error,
    )
    await expect.poll(lockWaits, SOON).toBe(1)
    go()
    await expect.poll(lockWaits, SOON).toBe(2)
    await other.query('COMMIT')
    expect(await skipping).not.toMatchObject({ code: '40P01' })
    await expect
      .poll(async () => (await bench.admin.query('SELECT FROM lockstep.outbox_parked')).rowCount, SOON)
      .toBe(0)
    expect(running.delivered).toEqual(['trades/a#1'])
  })

  // What a try of parked streams brought cannot be written: the disk is full, the server has become read-only, a privilege is missing.
  // The error is caught and told to nobody, the reader is woken, finds the stream due, and it is tried again at once, without a pause:
  // the sink gets the same event hundreds of times in a second. The shard's own cursor has a growing pause for that.
  test('outcomes that cannot be written', async () => {
    const { lockstep } = bench.open('pg')
    let tries = 0
    dispatch(lockstep, {
      backoffMs: { first: 1000, longest: 60_000 },
      sink: (batch) => {
        tries++
        return Promise.resolve(batch.map(() => ({ refused: 'never' })))
      },
    })
    await lockstep.transaction({}, (tx) => tx.enqueue(trade('a')))
    await expect
      .poll(async () => (await bench.admin.query('SELECT FROM lockstep.outbox_parked')).rowCount, SOON)
      .toBe(1)
    await bench.admin.query(`
      CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = '53100'; END $$;
      CREATE TRIGGER full_disk BEFORE UPDATE ON lockstep.outbox_parked FOR EACH ROW EXECUTE FUNCTION full_disk()`)
    ends.push(() => bench.admin.query('DROP FUNCTION full_disk CASCADE'))
    await eventually(() => tries > 1)
    await sleep(1500)
    expect(tries).toBeLessThan(10)
  })
})

describe.each(DRIVERS)('settings of the role, %s', (driver) => {
  // The database's default is REPEATABLE READ. 1. A dispatcher copies an event of a stream that waits (its transaction is open).
  // 2. outbox.erase(): its snapshot is taken, then it waits for the copy to be done. 3. The copy is committed. 4. erase() goes on with a
  // snapshot in which there is no copy: it says that it is done, and the payload is still in outbox_parked_events, and is delivered.
  test('erase() at REPEATABLE READ while a copy is being made', async () => {
    const lockstep = withSettings(driver, { default_transaction_isolation: 'repeatable read' })
    await bench.open('pg').lockstep.transaction({}, (tx) => tx.enqueue(trade('a', 'secret')))
    const other = await session()
    await other.query(`BEGIN;
      LOCK TABLE lockstep.outbox_parked_events IN ROW EXCLUSIVE MODE;
      INSERT INTO lockstep.outbox_parked_events
      SELECT 'default', e.stream, e.seq, e.id, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, NULL
        FROM lockstep.outbox_events e`)
    const erasing = lockstep.outbox.erase({ topic: 'trades', key: 'a' }, { reason: 'on request' })
    await expect.poll(lockWaits, SOON).toBe(1)
    await other.query('COMMIT')
    await erasing
    const { rows } = await bench.admin.query('SELECT payload, tombstone FROM lockstep.outbox_parked_events')
    expect(rows).toEqual([{ payload: null, tombstone: 'erased' }])
  })

  // '\x00'::bytea in the body of an SQL function is read with the session's setting: there \x00 is a zero.
  test('an event with standard_conforming_strings = off', async () => {
    const lockstep = withSettings(driver, { standard_conforming_strings: 'off', escape_string_warning: 'off' })
    const running = dispatch(lockstep)
    await lockstep.transaction({}, (tx) => tx.enqueue(trade("it's \\ a")))
    await Promise.race([running.until(1), sleep(3000)])
    expect(running.delivered).toEqual(["trades/it's \\ a#1"])
  })

  test.each([
    { default_transaction_isolation: 'serializable' },
    { default_transaction_isolation: 'repeatable read' },
    { statement_timeout: '2000', lock_timeout: '1000', idle_in_transaction_session_timeout: '1000' },
    { search_path: 'nowhere' },
    { enable_indexscan: 'off', enable_bitmapscan: 'off' },
    { plan_cache_mode: 'force_generic_plan' },
  ])('events come through with %o', (settings) => comesThrough(driver, settings))

  // The time is parsed by the driver, which knows the ISO form alone: 1970 with pg, an invalid Date with postgres.js.
  test.each([{ DateStyle: 'German' }, { DateStyle: 'SQL, DMY' }])('times with %o', (settings) =>
    comesThrough(driver, settings),
  )

  // postgres.js takes what comes for hex: the sink gets one byte of six, says 'sent', and nobody knows.
  test('bytes with bytea_output = escape', () => comesThrough(driver, { bytea_output: 'escape' }))
})

async function comesThrough(driver: DriverName, settings: object): Promise<void> {
  const lockstep = withSettings(driver, settings as Record<string, string>)
  let refused = false
  const running = dispatch(lockstep, {
    sink(batch) {
      const answers = batch.map(({ key }) => (key === 'a' && !refused ? { refused: 'once' } : ('sent' as const)))
      refused ||= batch.some(({ key }) => key === 'a')
      return Promise.resolve(answers)
    },
  })
  const bytes = Buffer.from([0, 1, 92, 39, 200, 255])
  const plain = bench.open('pg').lockstep
  await plain.transaction({}, (tx) => tx.enqueueMany([trade('a'), trade('b', bytes), trade('a'), trade('c')]))
  await Promise.race([running.until(4), sleep(5000)])
  expect(running.delivered.toSorted()).toEqual(['trades/a#1', 'trades/a#2', 'trades/b#1', 'trades/c#1'])
  const event = running.events.find(({ key }) => key === 'b')
  expect(event?.payload).toEqual(bytes)
  expect(Math.abs(Date.now() - (event?.enqueuedAt.getTime() ?? 0))).toBeLessThan(60_000)
}

const ROUTES = database.pooledUrl === undefined ? (['direct'] as const) : (['direct', 'pooled'] as const)
// Prepared statements of postgres.js behind a pooler need settings that the bench has not: docs/operating/poolers.md.
const SMALL = DRIVERS.flatMap((driver) =>
  ROUTES.flatMap((route) => [1, 2].map((max) => ({ driver, route, max }))),
).filter(({ driver, route, max }) => driver === 'pg' || route === 'direct' || max === 1)
describe.each(SMALL)('a pool of $max, $driver, $route', ({ driver, route, max }) => {
  test('delivers, parks, catches up and stops, while its sink uses the same pool', async () => {
    const url = route === 'pooled' ? (database.pooledUrl as string) : database.url
    const { lockstep } = bench.open(driver, { max, url })
    const refused = new Set<string>()
    const running = dispatch(lockstep, {
      shards: 4,
      async sink(batch) {
        await lockstep.transaction({}, (tx) => tx.query('SELECT 1'))
        const now = new Set(batch.filter(({ key, seq }) => seq === 2 && !refused.has(key)).map(({ key }) => key))
        for (const key of now) refused.add(key)
        return batch.map(({ key, seq }) => (seq >= 2 && now.has(key) ? { refused: 'once' } : ('sent' as const)))
      },
    })
    const keys = ['a', 'b', 'c', 'd', 'e', 'f']
    for (let round = 0; round < 5; round++) {
      await lockstep.transaction({}, (tx) => tx.enqueueMany(keys.map((each) => trade(each))))
    }
    await running.until(30)
    for (const each of keys) {
      const seqs = running.events.filter(({ key }) => key === each).map(({ seq }) => seq)
      expect(seqs).toEqual([1, 2, 3, 4, 5])
    }
    await running.stop()
  })
})
