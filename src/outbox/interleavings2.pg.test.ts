import pg from 'pg'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { pgBouncerAvailable, startPgBouncer } from '../../tools/server/pgbouncer.ts'
import { startPostgres } from '../../tools/server/postgres.ts'
import { startProxy } from '../../tools/server/proxy.ts'
import { leakGuard, testDatabase } from '../../tools/server/testDatabase.ts'
import { signal, workbench } from '../../tools/server/testing/workbench.ts'
import { type DispatcherOptions, Lockstep, type OutboxEvent, type SinkFunction } from '../index.ts'

/** More interleavings that break what the outbox promises; as in interleavings.pg.test.ts. */

const database = await testDatabase()
leakGuard(database)
const bench = workbench(database)
const SOON = { interval: 10, timeout: 4000 }
const EMPTY = `
  UPDATE lockstep.outbox_home SET system = (SELECT system_identifier::text FROM pg_control_system());
  TRUNCATE lockstep.outbox_events, lockstep.outbox_quiet, lockstep.outbox_ticks, lockstep.outbox_dispatchers, lockstep.outbox_cursors,
           lockstep.outbox_parked, lockstep.outbox_parked_events, lockstep.outbox_dead, lockstep.outbox_audit`

let stops: (() => unknown)[] = []
beforeEach(() => bench.admin.query(EMPTY))
afterEach(async () => {
  const running = stops.toReversed()
  stops = []
  for (const stop of running) await stop()
})

async function session(url = database.url): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => undefined)
  await client.connect()
  stops.push(() => client.end())
  return client
}

/** Runs a dispatcher; what its sink took is told as `key#seq`. */
function dispatch(
  lockstep: Lockstep,
  sink: SinkFunction,
  options: Omit<DispatcherOptions, 'sink'> = {},
): { names: string[]; events: OutboxEvent[]; stop: () => Promise<void> } {
  const controller = new AbortController()
  const [names, events]: [string[], OutboxEvent[]] = [[], []]
  const dispatcher = lockstep.outbox.dispatcher({
    retainMs: false,
    shards: 1,
    ...options,
    sink: async (batch, batchContext) => {
      const answers = (await sink(batch, batchContext)) ?? batch.map(() => 'sent' as const)
      batch.forEach((event, place) => {
        if (answers[place] !== 'sent') return
        names.push(`${event.key}#${event.seq}`)
        events.push(event)
      })
      return answers
    },
  })
  const ended = dispatcher.run({ signal: controller.signal })
  const stop = async (): Promise<void> => {
    controller.abort()
    await ended
  }
  stops.push(stop)
  return { names, events, stop }
}

const takeAll = (): undefined => undefined

async function enqueue(key: string, payload: unknown = {}, client: pg.Client | pg.Pool = bench.admin): Promise<void> {
  await client.query(`SELECT lockstep.enqueue('t', $1, $2)`, [key, JSON.stringify(payload)])
}

describe('lives', () => {
  const crashes = pgBouncerAvailable() ? test : test.skip

  /**
   * synchronous_commit = off. A window is read, its events are visible and not on disk, and the reader asks for a flush: on another
   * connection of the pool, or behind a pooler, which holds the question while the server crashes and comes back. The flush succeeds,
   * in the next life, where the events are gone. They are sent all the same; their numbers are given out again, with other uuids.
   */
  crashes('what a crash took between reading and the flush is not sent', async () => {
    const server = await startPostgres({ settings: { wal_writer_delay: '10s' } })
    stops.push(() => server.stop('immediate'))
    const bouncer = await startPgBouncer({ postgresPort: server.port, poolMode: 'transaction' })
    stops.push(() => bouncer.stop())
    const proxy = await startProxy({ targetPort: bouncer.port })
    stops.push(() => proxy.close())
    const pool = new pg.Pool({ connectionString: proxy.url(bouncer.url('postgres')), max: 4 })
    stops.push(() => pool.end())
    const lockstep = new Lockstep(pool)
    stops.push(() => lockstep.close())
    await lockstep.migrate()
    const { names, events } = dispatch(lockstep, takeAll, { ttlMs: 60_000 })
    const writer = await session(server.url())
    await enqueue('a', {}, writer)
    await expect.poll(() => names, SOON).toEqual(['a#1'])
    const held = signal()
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes('outbox_flush')) return 'forward'
      proxy.onClientData(undefined)
      held.give()
      stops.push(() => connection.cut())
      goOn = () => connection.release()
      return 'hold'
    })
    let goOn = (): void => undefined
    await writer.query('SET synchronous_commit = off')
    await enqueue('a', 'lost', writer)
    await held.given
    await server.crash()
    await server.start()
    const after = await session(server.url())
    expect((await after.query('SELECT seq FROM lockstep.outbox_events')).rows).toEqual([{ seq: '1' }])
    goOn()
    await enqueue('a', 'kept', after)
    await expect.poll(() => events.map(({ payload }) => payload), { ...SOON, timeout: 10_000 }).toContain('kept')
    expect(events.map(({ payload }) => payload)).not.toContain('lost')
  })
})

describe('parked streams', () => {
  /**
   * The pool's owner reads booleans in its own way, which the library heeds elsewhere. Here `waits` is compared with `true`: no
   * stream waits any more, and the events of one that is parked, blocked or paused go past those that are put aside.
   */
  test('a stream waits however the pool reads booleans', async () => {
    const types: pg.CustomTypesConfig = {
      getTypeParser: (oid: number) => (oid === 16 ? (value: string) => value : pg.types.getTypeParser(oid, 'text')),
    }
    const pool = new pg.Pool({ connectionString: database.url, max: 4, types })
    stops.push(() => pool.end())
    const lockstep = new Lockstep(pool)
    stops.push(() => lockstep.close())
    let refusing = true
    const { names } = dispatch(lockstep, (events) =>
      events.map(({ key, seq }) => (refusing && key === 'a' && seq === 1 ? { refused: 'no' } : 'sent')),
    )
    await enqueue('a')
    await expect.poll(async () => (await lockstep.outbox.parked()).length, SOON).toBe(1)
    await enqueue('a')
    await enqueue('b')
    await expect.poll(() => names, SOON).toContain('b#1')
    refusing = false
    await expect.poll(() => names, SOON).toContain('a#1')
    expect(names.filter((name) => name.startsWith('a'))).toEqual(['a#1', 'a#2'])
  })

  /**
   * A sink that throws says nothing about single events. In its first batch the poison event was found out, because the other one got
   * through. Tried again by itself nothing gets through: the sink is held to be down, the attempt is not counted, and the breaker,
   * which all streams share, stays open for up to 10 s. The event is never given up, and every other stream waits with it.
   */
  test('one poison event of a sink that throws does not keep the others waiting', async () => {
    const { lockstep } = bench.open('pg')
    let thrown = 0
    const { names } = dispatch(
      lockstep,
      (events) => {
        if (!events.some(({ payload }) => payload === 'poison')) return undefined
        thrown++
        throw new Error('cannot read that')
      },
      { attempts: 2, giveUp: 'skip', backoffMs: { first: 10, longest: 10 } },
    )
    await enqueue('bad', 'poison')
    await enqueue('good')
    await expect.poll(() => names, SOON).toContain('good#1')
    await expect.poll(() => thrown >= 14 || names.includes('bad#1'), { ...SOON, timeout: 15_000 }).toBe(true)
    await enqueue('good')
    await expect.poll(() => names, { ...SOON, timeout: 1000 }).toContain('good#2')
  })

  /**
   * The event of a paused stream is being copied to the parked ones when its payload is erased. The copy was read before, and is not
   * yet there for the erasing to see: it keeps what was erased, for as long as the stream waits, and is delivered with it.
   */
  test('what is put aside while it is erased is erased', async () => {
    const { lockstep } = bench.open('pg')
    const [owner, watcher] = [await session(), await session()]
    const shard = `'default', 0::smallint`
    await owner.query(`INSERT INTO lockstep.outbox_dispatchers (name, shards, system, database, timeline)
      SELECT 'default', 1, system::text, database::text, 1 FROM lockstep.ensure_incarnation()`)
    await owner.query(`SELECT lockstep.outbox_take(${shard}, 1, value::text, 1) FROM lockstep.incarnation`)
    await lockstep.outbox.pause({ topic: 't', key: 'a' })
    await enqueue('a', 'secret')
    const { rows } = await owner.query(
      `SELECT * FROM lockstep.outbox_read('default', ARRAY[0]::smallint[], ARRAY[1]::bigint[], ARRAY[500], 1)`,
    )
    const [window] = rows as Record<string, string>[]
    expect(window).toMatchObject({ ids: expect.stringMatching(/^[0-9a-f]{16}$/) as string, flags: 'w' })
    const waiting = JSON.stringify([{ topic: 't', key: 'a', seqs: [1] }])
    await owner.query('BEGIN')
    await owner.query(
      `SELECT lockstep.outbox_advance(${shard}, 1, $1, $2, $3::pg_snapshot, $4::pg_snapshot, $5, true, 0, $6)`,
      [
        window?.['version'],
        window?.['life'],
        window?.['prev'],
        window?.['next'],
        Number(`0x${window?.['ids']}`),
        waiting,
      ],
    )
    let done = false
    const erasing = lockstep.outbox.erase({ topic: 't', key: 'a' }).then(() => (done = true))
    const blocked = `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%outbox_erase%'`
    await expect.poll(async () => done || (await watcher.query(blocked)).rowCount === 1, SOON).toBe(true)
    await owner.query('COMMIT')
    await erasing
    const kept = await watcher.query('SELECT payload FROM lockstep.outbox_parked_events WHERE payload IS NOT NULL')
    expect(kept.rows).toEqual([])
  })
})

describe('replay', () => {
  /**
   * a#1 has position 1 and is not committed; b#1 has position 2 and is. A replay gives b#1 and says: go on from 2. Then a#1 is
   * committed, behind that position, and a#2 comes after it. Whoever goes on from 2 gets a#2 and never a#1.
   */
  test('going on from where a replay ended leaves no gap', async () => {
    const { lockstep } = bench.open('pg')
    const slow = await session()
    await slow.query('BEGIN')
    await slow.query(`SELECT lockstep.enqueue('t', 'a', '1')`)
    await enqueue('b')
    const names: string[] = []
    const sink: SinkFunction = (events) => void names.push(...events.map(({ key, seq }) => `${key}#${seq}`))
    const { position } = await lockstep.outbox.replay({ sink })
    await slow.query('COMMIT')
    await enqueue('a')
    await lockstep.outbox.replay({ sink, fromPosition: position })
    expect(names.filter((name) => name.startsWith('a'))).toEqual(['a#1', 'a#2'])
  })
})
