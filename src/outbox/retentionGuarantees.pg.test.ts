import { describe, expect, test } from 'vitest'
import { eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, failureOf } from '../../tools/server/testing/workbench.ts'
import { type Lockstep, ReplayGapError } from '../index.ts'

/** What retention owes to dispatchers, to replays, to roles with timeouts, and to those who have stopped. */

const bench = await outboxBench()

/** So many events of one stream, in one transaction. */
async function enqueue(lockstep: Lockstep, key: string, count = 1): Promise<void> {
  const events = Array.from({ length: count }, (_, n) => ({ topic: 't', key, payload: n }))
  await lockstep.transaction({}, (tx) => tx.enqueueMany(events))
}

async function stored(key: string): Promise<number> {
  const text = 'SELECT count(*)::int AS n FROM lockstep.outbox_events WHERE key = $1'
  return (await bench.admin.query<{ n: number }>(text, [key])).rows[0]?.n ?? 0
}

/** Leaves the current segment. */
const leftBehind = (lockstep: Lockstep): Promise<void> =>
  eventually(async () => (await lockstep.outbox.retain({ olderThanMs: 3_600_000, rotateMs: 0 })).rotated)

/** Empties every segment that was left. */
const emptied = (lockstep: Lockstep, key: string, left: number): Promise<void> =>
  eventually(async () => {
    await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 3_600_000 })
    return (await stored(key)) === left
  })

describe('several dispatchers', () => {
  /** A round of retention has gone by when a tick that every dispatcher has passed is gone. */
  async function rounds(lockstep: Lockstep, count: number): Promise<void> {
    for (let round = 0; round < count; round++) {
      await bench.admin.query('SELECT lockstep.outbox_tick(1)')
      await enqueue(lockstep, 'later')
      await eventually(async () => (await bench.admin.query('SELECT FROM lockstep.outbox_ticks')).rowCount === 0)
    }
  }

  test.each([3_600_000, false] as const)(
    'keep events as long as one of them needs, with retainMs: %j beside a short one',
    async (retainMs) => {
      const { lockstep } = bench.open('pg', { max: 10 })
      const short = bench.dispatch(lockstep, { name: 'short', retainMs: 6 })
      const long = bench.dispatch(lockstep, { name: 'long', retainMs })
      await enqueue(lockstep, 'a')
      await eventually(() => [short, long].every(({ delivered }) => delivered.includes('t/a#1')))
      await rounds(lockstep, 5)
      expect(await stored('a')).toBe(1)
      // Who wants it no longer is heard as well.
      await long.stop()
      bench.dispatch(lockstep, { name: 'long', retainMs: 6 })
      await eventually(async () => {
        await enqueue(lockstep, 'later')
        return (await stored('a')) === 0
      })
    },
  )

  test('ignore the retainMs of a process that is rejected', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    const run = bench.dispatch(lockstep, { retainMs: 3_600_000 })
    await enqueue(lockstep, 'a')
    await run.until(1)
    const wrong = lockstep.outbox.dispatcher({ shards: 4, retainMs: 1, sink: () => undefined }).run()
    expect(await failureOf(wrong)).toMatchObject({ code: 'LOCKSTEP_INVALID_OPTION' })
    const { rows } = await bench.admin.query('SELECT retain_ms::int FROM lockstep.outbox_dispatchers')
    expect(rows).toEqual([{ retain_ms: 3_600_000 }])
  })
})

describe.each(DRIVERS)('a replay while retention empties segments, %s', (driver) => {
  /** 1 to 30 in a segment that was left, 31 to 60 in the next one, all delivered. */
  async function sixty(): Promise<Lockstep> {
    const { lockstep } = bench.open(driver, { max: 8 })
    const run = bench.dispatch(lockstep)
    await enqueue(lockstep, 'a', 30)
    await leftBehind(lockstep)
    await enqueue(lockstep, 'a', 30)
    await run.until(60)
    return lockstep
  }

  const from = (first: number, last: number): number[] => Array.from({ length: last - first + 1 }, (_, n) => first + n)

  test.each([{ topic: 't', key: 'a' }, { topic: 't' }, {}])(
    'rejects when events are gone that it has not read: %j',
    async (what) => {
      const lockstep = await sixty()
      const seen: number[] = []
      const replaying = lockstep.outbox.replay({
        ...what,
        batch: 10,
        async sink(events) {
          if (seen.length === 0) await emptied(lockstep, 'a', 30)
          seen.push(...events.map(({ seq }) => seq))
        },
      })
      const failure = await failureOf(replaying)
      expect(seen).toEqual(from(1, 10))
      expect(failure).toBeInstanceOf(ReplayGapError)
      const { rows } = await bench.admin.query<{ id: number }>('SELECT last_value::int AS id FROM lockstep.outbox_ids')
      expect(failure).toMatchObject({ position: (rows[0]?.id ?? 0) - 50, seq: 'key' in what ? 11 : undefined })
    },
  )

  test.each([{ topic: 't', key: 'a' }, {}])(
    'rejects when everything is gone that it has not read: %j',
    async (what) => {
      const lockstep = await sixty()
      await leftBehind(lockstep)
      const seen: number[] = []
      const replaying = lockstep.outbox.replay({
        ...what,
        batch: 10,
        async sink(events) {
          seen.push(...events.map(({ seq }) => seq))
          if (seen.length > 10) return
          await enqueue(lockstep, 'b')
          await emptied(lockstep, 'a', 0)
        },
      })
      expect(await failureOf(replaying)).toBeInstanceOf(ReplayGapError)
      expect(seen).toEqual(from(1, 10))
    },
  )

  test.each([{ topic: 't', key: 'a' }, {}])('continues when it has read what is gone: %j', async (what) => {
    const lockstep = await sixty()
    const seen: number[] = []
    const { events } = await lockstep.outbox.replay({
      ...what,
      batch: 15,
      async sink(batch) {
        seen.push(...batch.map(({ seq }) => seq))
        if (seen.length === 30) await emptied(lockstep, 'a', 30)
      },
    })
    expect([events, seen]).toEqual([60, from(1, 60)])
  })

  test.each([{ topic: 't', key: 'a' }, {}])('rejects when a segment is dropped while it reads: %j', async (what) => {
    const { lockstep } = bench.open(driver, { max: 8 })
    const run = bench.dispatch(lockstep, {})
    await enqueue(lockstep, 'a', 30)
    await leftBehind(lockstep)
    await enqueue(lockstep, 'a', 30)
    await run.until(60)
    const dropper = await bench.admin.connect()
    const seen: number[] = []
    let dropped: Promise<unknown> | undefined
    const blocked = async (): Promise<boolean> => {
      const { rows } = await bench.admin.query(
        `SELECT FROM pg_locks WHERE NOT granted AND locktype = 'relation'
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
      )
      return rows.length > 0
    }
    const replaying = lockstep.outbox.replay({
      ...what,
      batch: 10,
      async sink(events) {
        if (dropped === undefined) {
          await eventually(async () => {
            const { rows } = await dropper.query<{ readied: number }>(`SELECT readied FROM lockstep.outbox_keep('0')`)
            return rows[0]?.readied === 1
          })
          await dropper.query('BEGIN')
          expect((await dropper.query(`SELECT lockstep.outbox_drop('0') AS dropped`)).rows).toEqual([{ dropped: 1 }])
          dropped = eventually(blocked).then(() => dropper.query('COMMIT'))
        }
        seen.push(...events.map(({ seq }) => seq))
      },
    })
    expect(await failureOf(replaying)).toBeInstanceOf(ReplayGapError)
    await dropped
    dropper.release()
    expect(seen).toEqual(Array.from({ length: 10 }, (_, n) => n + 1))
  })

  test('continues to the end of a stream when only others have lost events', async () => {
    const lockstep = await sixty()
    await enqueue(lockstep, 'short', 5)
    await leftBehind(lockstep)
    await enqueue(lockstep, 'late')
    const seen: number[] = []
    const replayed = await lockstep.outbox.replay({
      topic: 't',
      key: 'short',
      toSeq: 9,
      async sink(batch) {
        seen.push(...batch.map(({ seq }) => seq))
        await emptied(lockstep, 'a', 0)
      },
    })
    expect([replayed.events, seen]).toEqual([5, from(1, 5)])
  })
})

test('empties segments in steps for a role with a short statement_timeout', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const run = bench.dispatch(lockstep, { batch: 10_000 })
  const streams = 60_000
  for (let first = 0; first < streams; first += 10_000) {
    const keys = Array.from({ length: 10_000 }, (_, n) => ({ topic: 't', key: `k${first + n}`, payload: 0 }))
    await lockstep.transaction({}, (tx) => tx.enqueueMany(keys))
  }
  await leftBehind(lockstep)
  await enqueue(lockstep, 'k7')
  await run.until(streams + 1)
  // All statements of a round have that time: on a busy machine another one may need a second try.
  const url = `${bench.url}?options=${encodeURIComponent('-c statement_timeout=200')}`
  const hurried = bench.open('pg', { url }).lockstep
  await eventually(async () => {
    await hurried.outbox.retain({ olderThanMs: 0, rotateMs: 3_600_000 }).catch((error: unknown) => {
      if ((error as { code?: string }).code !== '57014') throw error
    })
    return (await stored('k8')) === 0
  })
  const { rows } = await bench.admin.query(
    `SELECT count(*)::int AS quiet, count(*) FILTER (WHERE key = 'k7')::int AS busy FROM lockstep.outbox_quiet`,
  )
  expect(rows).toEqual([{ quiet: streams - 1, busy: 0 }])
  const { rows: next } = await bench.admin.query(
    `SELECT lockstep.enqueue('t', 'k7', '1')::int AS seven, lockstep.enqueue('t', 'k8', '1')::int AS eight`,
  )
  expect(next).toEqual([{ seven: 3, eight: 2 }])
})
