import { beforeEach, describe, expect, test } from 'vitest'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import { EventRefusedError, type Lockstep, perEvent } from '../index.ts'

/** `status()` has a limit to its cost, however far behind a dispatcher is. Counted in pages, which do not depend on how busy the machine is. */

// A busy machine takes its time.
const bench = await testBench()
let number = 0
let name: string

beforeEach(async () => {
  name = `d${++number}`
  await bench.admin.query(
    'TRUNCATE lockstep.outbox_events, lockstep.outbox_parked, lockstep.outbox_parked_events, lockstep.outbox_dispatchers, lockstep.outbox_cursors',
  )
})

/** A dispatcher that has delivered everything so far, and stands still. */
async function stoppedDispatcher(lockstep: Lockstep, shards: number): Promise<void> {
  await bench.admin.query(`SELECT lockstep.enqueue('behind', n::text, '1') FROM generate_series(1, 100) AS n`)
  const run = dispatching(lockstep, { name, shards })
  await run.until(100)
  await eventually(async () => (await lockstep.outbox.lag(name)).events === 0)
  await run.stop()
}

const refuse = perEvent({}, () => {
  throw new EventRefusedError('not this one')
})

async function behind(lockstep: Lockstep): Promise<{ events: number; estimated: boolean; lagMs: number }> {
  const { shards } = await lockstep.outbox.status()
  return {
    events: shards.reduce((sum, { lagEvents }) => sum + lagEvents, 0),
    estimated: shards.some(({ lagEstimated }) => lagEstimated),
    lagMs: Math.max(...shards.map(({ lagMs }) => lagMs)),
  }
}

async function pages(): Promise<number> {
  const { rows } = await bench.admin.query<{ 'QUERY PLAN': [{ Plan: Record<string, number> }] }>(
    'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM lockstep.outbox_status()',
  )
  const plan = rows[0]?.['QUERY PLAN'][0].Plan ?? {}
  return (plan['Shared Hit Blocks'] ?? 0) + (plan['Shared Read Blocks'] ?? 0)
}

/** As if they had been enqueued in transactions of so many events each. */
async function fallBehind(events: number, each: number): Promise<void> {
  await bench.admin.query(`
    DO $$ BEGIN FOR n IN 1 .. ${Math.ceil(events / each)} LOOP
      PERFORM lockstep.outbox_append_many(array_agg('behind'::text), array_agg(md5((n * ${each} + m)::text)), array_agg('1'::text),
                                          array_agg(NULL::bytea), array_agg(NULL::text))
         FROM generate_series(1, ${each}) AS m; COMMIT; END LOOP; END $$`)
}

/** Each of its own stream, in one statement, which takes seconds where enqueuing takes minutes. Neighbors are in different groups. */
async function fallFarBehind(events: number): Promise<void> {
  await bench.admin.query(`
    INSERT INTO lockstep.outbox_events (slot, xid, bucket, bucket_group, stream, seq, uuid, enqueued_at, topic, key, payload)
    SELECT s.last_value, pg_current_xact_id(), b.bucket, b.bucket / 16, gen_random_uuid(), 1, gen_random_uuid(), clock_timestamp(), 'behind', n::text, '1'
      FROM lockstep.outbox_slot s, generate_series(1, ${events}) AS n, LATERAL (SELECT n * 617 % 1024 AS bucket) AS b`)
}

/** It looks at so many events of a group at both ends, and reads a page of the index and one of the table for each. */
const MOST_PAGES = 64 * (2 * 50) * 2

describe('status()', () => {
  test('reads few pages with ten events, and a limited number with 500,000', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    await stoppedDispatcher(lockstep, 8)
    const none = await pages()
    await fallFarBehind(10)
    const ten = await pages()
    expect(await behind(lockstep)).toMatchObject({ events: 10, estimated: false })
    // Each with its way through the index.
    expect(ten).toBeLessThanOrEqual(none + 10 * 5)
    await fallFarBehind(500_000 - 10)
    const many = await pages()
    const { events, estimated } = await behind(lockstep)
    expect(estimated).toBe(true)
    expect(events).toBeGreaterThan(500_000 * 0.7)
    expect(events).toBeLessThan(500_000 * 1.3)
    expect(many).toBeLessThan(MOST_PAGES)
  })

  test('counts few events exactly', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    await stoppedDispatcher(lockstep, 4)
    await fallBehind(60, 3)
    expect(await behind(lockstep)).toMatchObject({ events: 60, estimated: false })
    expect(await lockstep.outbox.lag(name)).toMatchObject({ events: 60, estimated: false, parkedStreams: 0 })
  })

  test.each([1, 8])('estimates many events at a constant cost, with %i shards', async (shards) => {
    const { lockstep } = bench.open('pg', { max: 6 })
    await stoppedDispatcher(lockstep, shards)
    await fallBehind(20_000, 200)
    const few = await pages()
    expect(await behind(lockstep)).toMatchObject({ estimated: true })
    await fallBehind(80_000, 200)
    expect(await pages()).toBeLessThanOrEqual(few * 1.5)
    const { events, estimated, lagMs } = await behind(lockstep)
    expect(estimated).toBe(true)
    expect(events).toBeGreaterThan(100_000 * 0.7)
    expect(events).toBeLessThan(100_000 * 1.3)
    expect(lagMs).toBeGreaterThan(0)
    const lag = await lockstep.outbox.lag(name)
    expect(lag).toMatchObject({ events, estimated: true })
    expect(lag.lagMs).toBeGreaterThanOrEqual(lagMs)
  })

  /** Delivers so many events of one window, and compares what is reported of the rest. */
  async function expectEstimateAfter(lockstep: Lockstep, delivered: number, all: number): Promise<void> {
    // Without ticks all of it is one window, as after a crash.
    await bench.admin.query('TRUNCATE lockstep.outbox_ticks')
    const run = dispatching(lockstep, { name, shards: 1, batch: 500 })
    await run.until(delivered)
    await run.stop()
    const left = all - run.delivered.length
    const { rows } = await bench.admin.query(
      'SELECT * FROM lockstep.outbox_cursors WHERE dispatcher = $1 ORDER BY version DESC',
      [name],
    )
    expect(rows[0]).toMatchObject({ done: false })
    const { events } = await behind(lockstep)
    const seen = JSON.stringify({ left, rows, again: await behind(lockstep) })
    expect(events, seen).toBeGreaterThan(left * 0.7)
    expect(events, seen).toBeLessThan(left * 1.3)
    const half = await pages()
    expect(half).toBeLessThan(20_000)
    const again = dispatching(lockstep, { name, shards: 1 })
    await again.until(left)
    await again.stop()
    expect(await behind(lockstep)).toMatchObject({ events: 0, lagMs: 0 })
  }

  test.each([
    ['many small transactions', 1, 10_000],
    ['one transaction', 20_000, 10_000],
    ['several large transactions, in the last one', 2000, 18_300],
  ])('estimates in the middle of a window of %s', async (_, each, delivered) => {
    const { lockstep } = bench.open('pg', { max: 6 })
    await stoppedDispatcher(lockstep, 1)
    await fallBehind(20_000, each)
    await expectEstimateAfter(lockstep, delivered, 20_000)
  })

  test('estimates in the middle of a window of one transaction that began while transactions without events were open', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    const others = await Promise.all(Array.from({ length: 6 }, () => bench.session()))
    for (const other of others) await other.query('BEGIN; SELECT pg_current_xact_id()')
    await stoppedDispatcher(lockstep, 1)
    for (const other of others) await other.query('COMMIT')
    await fallBehind(20_000, 20_000)
    await expectEstimateAfter(lockstep, 10_000, 20_000)
  })

  test('estimates in the middle of a window of concurrent large transactions', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    await stoppedDispatcher(lockstep, 1)
    const writers = await Promise.all(Array.from({ length: 8 }, () => bench.session()))
    for (const writer of writers) await writer.query('BEGIN')
    // At most 100 streams each: with more a transaction locks whole groups, and the next one waits for it.
    for (let round = 0; round < 20; round++) {
      for (const [n, writer] of writers.entries()) {
        await writer.query(`SELECT lockstep.enqueue('behind', '${n}-' || k, '1') FROM generate_series(1, 95) AS k`)
      }
    }
    for (const writer of writers) await writer.query('COMMIT')
    await expectEstimateAfter(lockstep, 8000, 8 * 95 * 20)
  })

  test('counts events of a transaction that was open when the window was read', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    const late = await bench.admin.connect()
    try {
      await late.query('BEGIN')
      await late.query(`SELECT lockstep.enqueue('behind', 'late', '1')`)
      await stoppedDispatcher(lockstep, 2)
      expect(await behind(lockstep)).toMatchObject({ events: 0 })
      await late.query('COMMIT')
      expect(await behind(lockstep)).toMatchObject({ events: 1, estimated: false })
    } finally {
      late.release()
    }
  })
})

describe('lag()', () => {
  test('asks with one message', async () => {
    const { proxy, lockstep } = await bench.proxied('pg')
    await stoppedDispatcher(lockstep, 2)
    proxy.roundTrips = 0
    expect(await lockstep.outbox.lag(name)).toEqual({ events: 0, estimated: false, lagMs: 0, parkedStreams: 0 })
    expect(proxy.roundTrips).toBe(1)
  })

  test('counts one dispatcher alone', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    await stoppedDispatcher(lockstep, 2)
    const first = name
    name = `d${++number}`
    await stoppedDispatcher(lockstep, 1)
    await fallBehind(4, 2)
    const run = dispatching(lockstep, { name: first, shards: 2 })
    await run.until(4 + 100)
    await eventually(async () => (await lockstep.outbox.lag(first)).events === 0)
    await run.stop()
    expect(await lockstep.outbox.lag(name)).toMatchObject({ events: 4 })
  })

  test('counts parked streams', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    await stoppedDispatcher(lockstep, 1)
    await fallBehind(3, 3)
    const backoffMs = { first: 60_000 }
    const [stop, sink] = [new AbortController(), refuse]
    const running = lockstep.outbox.dispatcher({ name, shards: 1, backoffMs, sink }).run({ signal: stop.signal })
    await eventually(async () => (await lockstep.outbox.lag(name)).parkedStreams === 3)
    stop.abort()
    await running
    expect(await lockstep.outbox.lag(name)).toMatchObject({ events: 0, parkedStreams: 3 })
  })

  test('refuses a dispatcher that has never run', async () => {
    const { lockstep } = bench.open('pg')
    expect(await failureOf(lockstep.outbox.lag(`o'nobody`))).toMatchObject({
      code: 'LOCKSTEP_INVALID_OPTION',
      message: expect.stringContaining(`There is no dispatcher o'nobody.`) as string,
    })
  })
})

test('disables JIT in every function that reads tables', async () => {
  const { rows } = await bench.admin.query<{ name: string }>(
    `SELECT p.proname AS name FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname = 'lockstep' AND p.prosrc ~* '\\m(FROM|INTO|UPDATE|JOIN)\\s+"?lockstep"?\\.\\w+\\M(?!\\()'
        AND NOT COALESCE(p.proconfig @> '{jit=off}', false)
      ORDER BY 1`,
  )
  expect(rows.map((row) => row.name)).toEqual([])
})
