import { existsSync } from 'node:fs'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { ConsoleQueries, QUERIES } from '../console/queries.ts'
import { RolloutObservations } from '../console/rolloutObservations.ts'
import { Searches } from '../console/searches.ts'
import { key, Lockstep } from '../index.ts'

/**
 * A server with LLVM compiles every statement whose plan it takes for expensive. Compiling takes seconds, and none of our statements runs
 * for as long. Debian's server has LLVM; the one that comes with the tests has not.
 */

const DEBIAN_15 = '/usr/lib/postgresql/15'
const isThere = existsSync(join(DEBIAN_15, 'bin/initdb')) && existsSync(join(DEBIAN_15, 'lib/llvmjit.so'))

/**
 * A hundredth of the default. What the planner expects grows with the rows, so a statement that is compiled here would be with the default on a server
 * that has a hundred times as many.
 */
const JIT_ABOVE_COST = '1000'

describe.skipIf(!isThere)('on a server with LLVM', () => {
  let server: PostgresServer
  let pool: pg.Pool
  /** For rows of the test, whose statements are not ours. */
  let fixtures: pg.Pool
  let lockstep: Lockstep

  beforeAll(async () => {
    const binary = (name: string): string => join(DEBIAN_15, 'bin', name)
    server = await startPostgres({
      binaries: { initdb: binary('initdb'), pg_ctl: binary('pg_ctl'), postgres: binary('postgres') },
      settings: {
        jit: 'on',
        jit_above_cost: JIT_ABOVE_COST,
        shared_preload_libraries: 'pg_stat_statements',
        'pg_stat_statements.track': 'all',
      },
    })
    pool = new pg.Pool({ connectionString: server.url(), max: 8 })
    fixtures = new pg.Pool({ connectionString: server.url(), max: 1, options: '-c jit=off' })
    // The server stops while the last sessions are still ending.
    for (const each of [pool, fixtures]) each.on('error', () => undefined)
    lockstep = new Lockstep(pool)
    await pool.query('CREATE EXTENSION pg_stat_statements')
    await lockstep.migrate()
    // It reads the rights on all functions: as many as there are, however many rows.
    await pool.query('SELECT pg_stat_statements_reset()')
  })

  afterAll(async () => {
    await lockstep?.close()
    await pool?.end()
    await fixtures?.end()
    await server?.stop()
  })

  const compiled = async (): Promise<string[]> => {
    const { rows } = await pool.query<{ query: string }>(
      'SELECT query FROM pg_stat_statements WHERE jit_functions > 0 ORDER BY query',
    )
    return rows.map(({ query }) => query)
  }

  test('compiles an expensive query (control)', async () => {
    await pool.query(
      'SET jit_above_cost = 0; SELECT count(*) FROM pg_class WHERE relname > $$a$$; RESET jit_above_cost',
    )
    expect(await compiled()).toHaveLength(1)
    await pool.query('SELECT pg_stat_statements_reset()')
  })

  test('compiles no statement of ours', async () => {
    await fixtures.query(`SELECT lockstep.enqueue('t', (n % 500)::text, '1') FROM generate_series(1, 20000) AS n`)
    let refuses = true
    const run = dispatching(lockstep, {
      shards: 8,
      attempts: 1_000_000,
      sink: (events) => events.map(({ key: name }) => (refuses && name === '7' ? { refused: 'no' } : 'sent')),
    })
    await run.until(19_900)
    await eventually(async () => (await lockstep.outbox.parked())[0]?.events === 40)
    refuses = false
    await run.until(20_000)
    await eventually(async () => (await lockstep.outbox.parked()).length === 0)
    await run.stop()
    await fixtures.query(`SELECT lockstep.enqueue('t', (n % 1000)::text, '1') FROM generate_series(1, 30000) AS n`)
    await lockstep.outbox.status()
    await lockstep.outbox.pause({ topic: 't', key: '1' })
    await lockstep.outbox.resume({ topic: 't', key: '1' })
    await lockstep.outbox.replay({ sink: () => undefined, topic: 't', key: '8' })
    await lockstep.outbox.replay({ sink: () => undefined, fromPosition: 49_000 })
    await lockstep.outbox.erase({ topic: 't', key: '9' })
    for (let n = 0; n < 3; n++) await lockstep.outbox.retain({ olderThanMs: 0 })
    for (let n = 0; n < 200; n++) await lockstep.leases.acquire(key`Lease:${n}`, { ttlMs: 60_000 })
    await lockstep.leases.list({ prefix: 'Lease:' })
    await lockstep.leases.inspect(key`Lease:1`)
    await lockstep.leases.history(key`Lease:1`)
    await lockstep.leases.forceRelease(key`Lease:1`, { reason: 'a test', by: 'a test' })
    await lockstep.transaction({ lock: 'Lock:1' }, () => lockstep.locks.list())
    await lockstep.doctor()
    const [event] = run.events
    if (event !== undefined) await lockstep.transaction({}, (tx) => lockstep.inbox.consumer('c').accept(tx, event))
    await lockstep.outbox.removeDispatcher('default', { reason: 'a test' })
    expect(await compiled()).toEqual([])
  })

  describe('compiles no statement of ours', () => {
    const reason = 'a test'
    const ROWS = 30_000

    async function enqueued(topic: string, events: number, keys: number): Promise<void> {
      await fixtures.query(
        `SELECT lockstep.enqueue($1, (n % $3::int)::text, '1') FROM generate_series(1, $2::int) AS n`,
        [topic, events, keys],
      )
    }

    afterEach(async () => {
      expect(await compiled()).toEqual([])
    })

    test('for lag(), drain(), split(), events(), deadLetters() and redrive()', async () => {
      await enqueued('operated', ROWS, 1000)
      const dispatcher = { name: 'operated', topics: ['operated'], shards: 2 }
      const refusing = lockstep.outbox.dispatcher({
        ...dispatcher,
        attempts: 1,
        giveUp: 'deadLetter',
        sink: (events) => events.map(({ key: name }) => (Number(name) < 200 ? { refused: 'no' } : 'sent')),
      })
      await refusing.drain()
      const parking = lockstep.outbox.dispatcher({
        ...dispatcher,
        backoffMs: { first: 600_000 },
        sink: (events) => events.map(({ key: name }) => (Number(name) < 500 ? { refused: 'no' } : 'sent')),
      })
      await enqueued('operated', ROWS, 1000)
      await parking.drain()
      await enqueued('operated', ROWS, 1000)
      expect(await lockstep.outbox.lag('operated')).toMatchObject({ parkedStreams: 500 })
      expect(await lockstep.outbox.split('operated', { shards: 4, preview: true })).toMatchObject({ from: 2 })
      expect(await lockstep.outbox.split('operated', { shards: 4, reason })).toMatchObject({ to: 4 })

      const { next } = await lockstep.outbox.events({ topic: 'operated' })
      const rest = { ...(next === undefined ? {} : { cursor: next }), newestFirst: false }
      for (const wanted of [
        {},
        { topic: 'operated', key: '7', fromSeq: 2, newestFirst: true },
        { topic: 'operated', ...rest },
        { from: new Date(Date.now() - 60_000), to: new Date(), newestFirst: true },
        { header: { name: 'nothing', value: 'of it' } },
      ]) {
        await lockstep.outbox.events(wanted)
      }

      // One of each stream: what follows a refused event is parked.
      const dead = await lockstep.outbox.deadLetters({ limit: 100 })
      expect(dead.deadLetters).toHaveLength(100)
      await lockstep.outbox.deadLetters({ cursor: dead.next as string })
      await lockstep.outbox.deadLetters({ dispatcher: 'operated', topic: 'operated', key: '7', error: 'NO' })
      const ids = dead.deadLetters.slice(0, 50).map(({ id }) => id)
      await lockstep.outbox.redrive('dead', { dispatcher: 'operated', error: 'no', preview: true })
      await lockstep.outbox.redrive('dead', { dispatcher: 'operated', ids, reason })
      const redriven = await lockstep.outbox.redrive('dead', { dispatcher: 'operated', error: 'no', reason })
      expect(redriven.redriven).toBeGreaterThan(0)
      await lockstep.outbox.redrive('parked', { dispatcher: 'operated', topic: 'operated', preview: true })
      const retried = await lockstep.outbox.redrive('parked', { dispatcher: 'operated', topic: 'operated', reason })
      expect(retried.redriven).toBeGreaterThan(0)
      const [stream] = await lockstep.outbox.parked({ dispatcher: 'operated' })
      if (stream === undefined) throw new Error('no stream is parked')
      await lockstep.outbox.retry({ dispatcher: 'operated', topic: stream.topic, key: stream.key })
    })

    test('for import() and finishImport()', async () => {
      await fixtures.query(
        'CREATE TABLE old_outbox (id bigserial PRIMARY KEY, aggregate int, payload jsonb, sent_at timestamptz)',
      )
      await fixtures.query(
        `INSERT INTO old_outbox (aggregate, payload) SELECT n % 1000, '{}' FROM generate_series(1, ${ROWS}) AS n`,
      )
      const columns = { topic: 'imported', key: '{aggregate}', order: 'id', sent: 'sent_at' }
      expect(await lockstep.outbox.import('old_outbox', { ...columns, preview: true })).toMatchObject({ pending: ROWS })
      expect(await lockstep.outbox.import('old_outbox', { ...columns, reason })).toMatchObject({ copied: ROWS })
      await fixtures.query(`INSERT INTO old_outbox (aggregate, payload) VALUES (1, '{}')`)
      await lockstep.outbox.import('old_outbox', { ...columns, reason })
      await lockstep.outbox.finishImport('old_outbox', { reason })
    })

    test('for guards', async () => {
      await fixtures.query('CREATE TABLE guarded (id bigint PRIMARY KEY, balance int NOT NULL DEFAULT 0)')
      await fixtures.query('INSERT INTO guarded (id) SELECT generate_series(1, 1000)')
      await lockstep.guards.add('guarded', { key: 'Account:{id}', mode: 'observe' })
      await fixtures.query('UPDATE guarded SET balance = 1')
      await lockstep.transaction({ lock: key`Account:${1}` }, (tx) =>
        tx.query('UPDATE guarded SET balance = 2 WHERE id = 1'),
      )
      const [guard] = await lockstep.guards.list()
      expect(guard?.unlocked).toBeGreaterThan(0)
      await lockstep.guards.samples('guarded')
      await lockstep.guards.set('guarded', { percent: 50 }, { reason })
      await lockstep.guards.remove('guarded')
    })

    test('for consumers.list(), and the inbox', async () => {
      await enqueued('consumed', 5000, 1000)
      await lockstep.consumer('listed', { topics: ['consumed'] }, async () => undefined).drain()
      await enqueued('consumed', 500, 500)
      expect((await lockstep.consumers.list()).map(({ name }) => name)).toContain('listed')
      await lockstep.inbox.positions({ consumer: 'listed' })
      await lockstep.inbox.consumer('listed').position({ topic: 'consumed', key: '1' })
    })

    test('for what the console asks', async () => {
      await lockstep.rollout.set('Lock:', 'on', { reason })
      const queries = new ConsoleQueries(lockstep)
      for (const name of QUERIES) await queries.ask[name]()
      const [stream] = await lockstep.outbox.parked({ dispatcher: 'operated' })
      await queries.head('operated', 'operated', stream?.key ?? '')
      await queries.ping()
      await queries.server()
      await queries.epochs()
      await queries.guards()
      const searches = new Searches(lockstep, new RolloutObservations(lockstep.schema))
      const words = (text: string): URLSearchParams => new URLSearchParams(text)
      await searches.events(words('topic=operated'), true)
      await searches.deadLetters(words('topic=operated&error=no'))
      await searches.many(words('what=parked&topic=operated'))
      await searches.consumers()
      await searches.inbox(words('consumer=listed'))
      await searches.idempotency(words(''))
      await searches.rollout()
      await searches.audit(words(''))
      await searches.leases(words('q=Lease'))
    })
  })
})
