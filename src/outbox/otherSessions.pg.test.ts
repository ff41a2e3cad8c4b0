import { Socket } from 'node:net'
import pg from 'pg'
import { beforeEach, describe, expect, test } from 'vitest'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, signal } from '../../tools/server/testing/workbench.ts'
import { Lockstep, type ShardStatus } from '../index.ts'

/** What others do on the server: a process that has stopped, old snapshots, publications, bulk loads. */

const bench = await outboxBench({ ownServer: true })

/** A session that holds a snapshot until the end of the test: what is deleted from now on stays where it is. */
async function oldSnapshot(): Promise<void> {
  const client = await bench.session()
  await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1')
  bench.cleanUp(() => client.query('COMMIT'))
}

/** A pool whose sockets, also those beside it, are read no more from the moment on at which so many bytes have come: a stopped process. */
class StoppingPool {
  readonly pool = new pg.Pool({
    connectionString: bench.url,
    max: 4,
    application_name: 'stopped',
    stream: () => this.#open(),
  })
  readonly stopped = signal()
  readonly #streams = new Set<Socket>()
  readonly #after: number
  #bytes = 0
  #isStopped = false

  constructor(after: number) {
    this.#after = after
    this.pool.on('error', () => undefined)
  }

  #open(): Socket {
    const stream = new Socket()
    this.#streams.add(stream)
    if (this.#isStopped) stream.pause()
    stream.on('data', (chunk: Buffer) => {
      this.#bytes += chunk.length
      if (this.#bytes > this.#after) this.#stop()
    })
    return stream
  }

  #stop(): void {
    this.#isStopped = true
    for (const stream of this.#streams) stream.pause()
    this.stopped.give()
  }

  goOn(): void {
    this.#isStopped = false
    this.#bytes = -Infinity
    for (const stream of this.#streams) stream.resume()
  }
}

/** Of a session: neither a snapshot nor a table. */
const holdsNothing = (session: object): boolean =>
  JSON.stringify(session) === JSON.stringify({ backend_xmin: null, tables: 0 })

// A socket of Bun continues reading after pause(), so that nothing here can stop a process as this has to.
const BUN = 'bun' in process.versions
test.skipIf(BUN)('does not block retention or VACUUM when its process is stopped during a read', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const large = 'x'.repeat(400_000)
  for (let n = 0; n < 80; n++)
    await lockstep.transaction({}, (tx) =>
      tx.enqueue({ topic: 't', key: `k${n}`, payload: `${n} ${Math.random()} ${large}` }),
    )
  const stopping = new StoppingPool(200_000)
  const before = new Lockstep(stopping.pool, { silenceMs: 600_000 })
  const first = dispatching(before, { shards: 8, retainMs: false, ttlMs: 2000 })
  bench.cleanUp(async () => {
    stopping.goOn()
    await first.stop()
    await before.close()
    await stopping.pool.end()
  })
  await stopping.stopped.given
  // If the sockets hold the whole answer, its session is idle. Otherwise it waits for a client that does not read.
  const sessions = async (): Promise<object[]> =>
    (
      await bench.admin.query<object>(
        `SELECT backend_xmin, (SELECT count(*)::int FROM pg_locks l WHERE l.pid = a.pid AND l.relation IS NOT NULL) AS tables
           FROM pg_stat_activity a WHERE application_name = 'stopped' AND query LIKE '%outbox_read%'`,
      )
    ).rows
  await expect.poll(sessions).toSatisfy((rows: object[]) => rows.length > 0 && rows.every(holdsNothing))
  const second = bench.dispatch(lockstep, { shards: 8 })
  await eventually(() => new Set(second.delivered).size === 80)
  await eventually(async () => (await lockstep.outbox.retain({ olderThanMs: 0, rotateMs: 0 })).dropped > 0)
  expect(await sessions()).toSatisfy((rows: object[]) => rows.length > 0 && rows.every(holdsNothing))
})

test('empties segments when a long reader has ended', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  bench.dispatch(lockstep, { retainMs: 600 })
  const enqueue = (): Promise<unknown> => bench.admin.query(`SELECT lockstep.enqueue('t', 'a', '1')`)
  const numbers = async (): Promise<number[]> => (await lockstep.outbox.status()).segments.map(({ number }) => number)
  await enqueue()
  // Has locked every slot, and has a transaction id of its own: no cursor passes that.
  const reader = await bench.session()
  await reader.query('BEGIN; SELECT pg_current_xact_id(); SELECT count(*) FROM lockstep.outbox_events')
  await eventually(async () => {
    await enqueue()
    return (await numbers()).length === 8
  })
  expect((await numbers())[0]).toBe(1)
  await reader.query('COMMIT')
  await eventually(async () => {
    await enqueue()
    return ((await numbers())[0] ?? 0) > 8
  })
})

test.each(DRIVERS.flatMap((driver) => ['German', 'SQL, DMY'].map((style) => ({ driver, style }))))(
  'returns the same times with DateStyle $style, $driver',
  async ({ driver, style }) => {
    const settings = `-c DateStyle=${style.replace(' ', String.raw`\ `)} -c IntervalStyle=iso_8601 -c TimeZone=Asia/Tokyo`
    const { lockstep } = bench.open(driver, { url: `${bench.url}?options=${encodeURIComponent(settings)}` })
    const { lockstep: plain } = bench.open('pg')
    const run = bench.dispatch(plain, { sink: (batch) => batch.map(() => ({ refused: 'no' })), attempts: 1 })
    const written = Date.now()
    await plain.transaction({}, (tx) => tx.enqueue({ topic: 't', key: 'a', payload: 1 }))
    await eventually(async () => (await plain.outbox.parked())[0]?.state === 'blocked')
    await run.stop()
    await plain.transaction({}, (tx) => tx.enqueue({ topic: 't', key: 'a', payload: 2 }))
    const { lagMs, ...shard } = (await lockstep.outbox.status()).shards[0] as ShardStatus
    const { lagMs: lagThere, ...there } = (await plain.outbox.status()).shards[0] as ShardStatus
    expect(shard).toEqual(there)
    expect(lagMs).toBeGreaterThanOrEqual(0)
    expect(lagMs).toBeLessThanOrEqual(lagThere)
    expect(Number(there.oldestUndelivered)).toBeGreaterThanOrEqual(written - 1000)
    expect((await lockstep.outbox.status()).segments).toEqual((await plain.outbox.status()).segments)
    expect(await lockstep.outbox.parked()).toEqual(await plain.outbox.parked())
  },
)

describe('a publication of all tables', () => {
  beforeEach(async () => {
    await bench.admin.query('CREATE PUBLICATION everything FOR ALL TABLES')
    bench.cleanUp(() => bench.admin.query('DROP PUBLICATION everything'))
  })

  test('does not keep payloads from being erased', async () => {
    const { lockstep } = bench.open('pg', { max: 6 })
    await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 't', key: 'a', payload: 'a secret' }))
    expect(await lockstep.outbox.erase({ topic: 't', key: 'a' })).toEqual({ erased: 1 })
    const run = bench.dispatch(lockstep)
    await run.until(1)
    expect(run.delivered).toEqual(['t/a#1†'])
    expect(await lockstep.outbox.rebase({ deliver: 'all' })).toMatchObject({ putAside: 1 })
  })

  // Those that are not logged are in no publication.
  test('finds a replica identity in every table whose rows are changed', async () => {
    const { rows } = await bench.admin.query(
      `SELECT c.relname FROM pg_class c
        WHERE c.relnamespace = 'lockstep'::regnamespace AND c.relkind = 'r' AND c.relpersistence = 'p'
          AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END)`,
    )
    expect(rows).toEqual([])
  })
})

describe('one transaction that enqueues to very many streams', () => {
  const LOCKS = `SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`

  test('holds a lock for each of the first hundred, then one per group', async () => {
    const client = await bench.session()
    await client.query('BEGIN')
    await client.query(`SELECT lockstep.enqueue('bulk', 'k' || n, '{}') FROM generate_series(1, 1000) AS n`)
    expect((await client.query<{ n: number }>(LOCKS)).rows[0]?.n).toBeLessThanOrEqual(100 + 2 * 64)
    const other = await bench.session()
    const { rows: pid } = await other.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
    const next = other.query<{ seq: number }>(`SELECT lockstep.enqueue('bulk', 'k999', '{}')::int AS seq`)
    await eventually(
      async () =>
        (await bench.admin.query(`SELECT FROM pg_locks WHERE NOT granted AND pid = $1`, [pid[0]?.pid])).rowCount === 1,
    )
    await client.query('COMMIT')
    expect((await next).rows).toEqual([{ seq: 2 }])
    expect((await client.query<{ n: number }>(LOCKS)).rows).toEqual([{ n: 0 }])
    const { rows } = await client.query(`SELECT current_setting('lockstep.outbox_streams') AS streams`)
    expect(rows).toEqual([{ streams: '' }])
  })

  test('holds as many through outbox.enqueue()', async () => {
    const { lockstep } = bench.open('pg')
    const client = await bench.session()
    await client.query('BEGIN')
    for (let n = 0; n < 400; n++) await lockstep.outbox.enqueue(client, { topic: 'bulk', key: `o${n}`, payload: n })
    expect((await client.query<{ n: number }>(LOCKS)).rows[0]?.n).toBeLessThanOrEqual(100 + 2 * 64)
    await client.query('COMMIT')
  })

  test('counts streams and not events, and forgets those of a savepoint that was rolled back', async () => {
    const client = await bench.session()
    const modes = `SELECT count(*) FILTER (WHERE mode = 'ExclusiveLock')::int AS exclusive, count(*) FILTER (WHERE mode = 'ShareLock')::int AS shared
                     FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`
    await client.query('BEGIN')
    await client.query(`SELECT lockstep.enqueue('bulk', 'one', '{}') FROM generate_series(1, 300)`)
    expect((await client.query(modes)).rows).toEqual([{ exclusive: 1, shared: 1 }])
    await client.query('SAVEPOINT s')
    await client.query(`SELECT lockstep.enqueue('bulk', 's' || n, '{}') FROM generate_series(1, 300) AS n`)
    await client.query('ROLLBACK TO s')
    expect((await client.query(modes)).rows).toEqual([{ exclusive: 1, shared: 1 }])
    await client.query(`SELECT lockstep.enqueue('bulk', 'two', '{}')`)
    expect((await client.query<{ exclusive: number }>(modes)).rows[0]?.exclusive).toBe(2)
    await client.query('ROLLBACK')
  })

  test('keeps its order whatever the session sets as the count', async () => {
    const [one, two] = [await bench.session(), await bench.session()]
    await one.query(`BEGIN; SET LOCAL lockstep.outbox_streams = '100'; SELECT lockstep.enqueue('bulk', 'lie', '1')`)
    const waiting = two.query<{ seq: number }>(`SELECT lockstep.enqueue('bulk', 'lie', '2')::int AS seq`)
    await bench.waiters(1)
    await one.query('COMMIT')
    expect((await waiting).rows).toEqual([{ seq: 2 }])
  })
})

/** How many entries of an index were looked at; reported by the sessions that did so when they end. */
async function entriesRead(index: string): Promise<number> {
  const { rows } = await bench.admin.query<{ n: number }>(
    `SELECT pg_stat_get_tuples_returned($1::regclass)::int AS n`,
    [`lockstep.${index}`],
  )
  return rows[0]?.n ?? 0
}

describe('while a session holds an old snapshot', () => {
  test('drains a parked stream at a constant cost per event', async () => {
    const pool = new pg.Pool({ connectionString: bench.url, max: 6 })
    const lockstep = new Lockstep(pool)
    const count = 6000
    let refusing = true
    const run = dispatching(lockstep, {
      shards: 1,
      retainMs: false,
      sink: (batch) => batch.map(() => (refusing ? { refused: 'not yet' } : ('sent' as const))),
      attempts: 1_000_000,
    })
    await lockstep.transaction({}, (tx) =>
      tx.enqueueMany(Array.from({ length: count }, (_, n) => ({ topic: 't', key: 'a', payload: n }))),
    )
    await eventually(
      async () => (await bench.admin.query('SELECT FROM lockstep.outbox_parked_events')).rowCount === count,
    )
    await oldSnapshot()
    const before = await entriesRead('outbox_parked_events_pkey')
    refusing = false
    await run.until(count)
    await run.stop()
    await lockstep.close()
    await pool.end()
    await eventually(
      async () =>
        (await bench.admin.query(`SELECT FROM pg_stat_activity WHERE datname = current_database()`)).rowCount === 2,
    )
    expect(run.delivered).toHaveLength(count)
    expect((await entriesRead('outbox_parked_events_pkey')) - before).toBeLessThan(10 * count)
  })

  test('moves a cursor at a constant cost', async () => {
    await bench.open('pg').lockstep.transaction({}, async () => undefined)
    await bench.admin.query(
      `INSERT INTO lockstep.outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
       VALUES ('d', 0, 1, 1, '1:1:', '1:1:', 0, true, 0)`,
    )
    const { rows } = await bench.admin.query<{ life: string }>(`SELECT value::text AS life FROM lockstep.incarnation`)
    await oldSnapshot()
    const client = new pg.Client({ connectionString: bench.url })
    await client.connect()
    const before = await entriesRead('outbox_cursors_pkey')
    const moves = 4000
    for (let version = 1; version <= moves; version++)
      await client.query(
        `SELECT lockstep.outbox_move('d', '{0}', '{1}', ARRAY[$1::bigint], ARRAY[$2], '{1:1:}', '{1:1:}', '{0}', '{true}', '{0}')`,
        [version, rows[0]?.life],
      )
    await client.end()
    const { rows: last } = await bench.admin.query(`SELECT max(version)::int AS version FROM lockstep.outbox_cursors`)
    expect(last).toEqual([{ version: moves + 1 }])
    await eventually(async () => (await entriesRead('outbox_cursors_pkey')) > before + moves)
    expect((await entriesRead('outbox_cursors_pkey')) - before).toBeLessThan(7 * moves)
  })
})
