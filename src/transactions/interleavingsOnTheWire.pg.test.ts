import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import type { ProxyConnection } from '../../tools/server/proxy.ts'
import { DRIVERS, failureOf, note, pidOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { LockAbortedError, Lockstep, LockTimeoutError } from '../index.ts'
import { on } from '../observe/index.ts'

/** Answers that come late, never, or other than they were meant, at the one moment at which it matters. */

const bench = await testBench()

/** Long enough for an answer over loopback, short enough to wait for. */
const SILENCE_MS = 300

const COMMIT = query('COMMIT')

/** One simple Query as it goes over the wire. */
function query(text: string): Buffer {
  return message('Q', `${text}\0`)
}

function message(type: string, body: string): Buffer {
  const bytes = Buffer.alloc(5 + Buffer.byteLength(body))
  bytes.write(type)
  bytes.writeInt32BE(bytes.length - 1, 1)
  bytes.write(body, 5)
  return bytes
}

/** What stands between client and server, for one connection. */
interface Between {
  readonly client: Socket
  readonly server: Socket
}

/** Gives what is to be sent on in place of what came; undefined where nothing is. */
type Rewrite = (chunk: Buffer, between: Between) => Buffer | undefined

const forgers: { close(): void }[] = []
afterEach(() => forgers.splice(0).forEach((each) => each.close()))

/** A way to the server on which what is said can be put in other words. */
async function forge(rewrite: { toServer: Rewrite; toClient?: Rewrite }): Promise<string> {
  const { hostname, port } = new URL(bench.url)
  const sockets = new Set<Socket>()
  const listener = createServer((client) => {
    const server = connect(Number(port || 5432), hostname)
    const between = { client, server }
    for (const [from, to, change] of [
      [client, server, rewrite.toServer],
      [server, client, rewrite.toClient],
    ] as const) {
      sockets.add(from)
      from.on('data', (chunk) => {
        const sent = change === undefined ? chunk : change(chunk, between)
        if (sent !== undefined && to.writable) to.write(sent)
      })
      from.on('error', () => undefined)
      from.on('close', () => to.end())
    }
  })
  forgers.push({ close: () => (listener.close(), sockets.forEach((socket) => socket.destroy())) })
  listener.listen(0, '127.0.0.1')
  await once(listener, 'listening')
  const forged = new URL(bench.url)
  forged.hostname = '127.0.0.1'
  forged.port = String((listener.address() as AddressInfo).port)
  return forged.href
}

describe.each(DRIVERS)('COMMIT that is answered with an error, %s', (driver) => {
  const ENDS = ['at once', 'unseen'] as const

  test.each(ENDS.flatMap((end) => ['FATAL', 'PANIC'].map((severity) => ({ severity, end }))))(
    '$severity of a code that nobody knows, and the end $end: it is looked up, not taken for a rollback',
    async ({ severity, end }) => {
      const answer = message('E', `S${severity}\0V${severity}\0C58030\0Mcould not fsync file\0\0`)
      let armed = false
      const struck = new WeakSet<Socket>()
      const url = await forge({
        toServer(chunk, { client }) {
          if (!armed || !chunk.equals(COMMIT)) return chunk
          armed = false
          struck.add(client)
          return chunk
        },
        toClient(chunk, { client }) {
          if (!struck.has(client)) return chunk
          if (end === 'at once') client.end(answer)
          else client.write(answer)
          return undefined
        },
      })
      const { lockstep } = bench.open(driver, { url, silenceMs: SILENCE_MS })
      await lockstep.transaction({}, async () => undefined)
      const outcomes: string[] = []
      const stop = on('commit.resolved', ({ outcome }) => outcomes.push(outcome))
      let runs = 0
      const value = await lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        await note(tx, `run ${++runs}`)
        armed = true
        return 'done'
      })
      stop()
      expect(value).toBe('done')
      expect(outcomes).toEqual(['committed'])
      expect(await bench.notes()).toEqual(['run 1'])
    },
  )

  test('a cancel before it could run: nothing is written, and the connection goes back clean', async () => {
    let armed = false
    const url = await forge({
      // A cancel that strikes as COMMIT begins leaves the transaction open, and failed. Nobody can aim at so short a
      // statement, so one that takes longer is in its place.
      toServer: (chunk) => (armed && chunk.equals(COMMIT) ? ((armed = false), query('SELECT pg_sleep(60)')) : chunk),
    })
    const client = bench.open(driver, { url, max: 1 })
    await client.lockstep.transaction({}, async () => undefined)
    let pid = 0
    const cancelled = failureOf(
      client.lockstep.transaction({ lock: 'Order:1' }, async (tx) => {
        await note(tx, 'lost')
        pid = await pidOf(tx)
        armed = true
      }),
    )
    const isCommitting = async (): Promise<unknown> => {
      const { rows } = await bench.admin.query('SELECT wait_event FROM pg_stat_activity WHERE pid = $1', [pid])
      return (rows[0] as { wait_event?: string } | undefined)?.wait_event
    }
    await expect.poll(isCommitting).toBe('PgSleep')
    await bench.admin.query('SELECT pg_cancel_backend($1)', [pid])
    expect(await cancelled).toMatchObject({ code: '57014' })
    expect(await client.query('SELECT pg_backend_pid() AS pid')).toEqual([{ pid }])
    expect(await bench.locksHeld()).toBe(0)
    expect(await bench.notes()).toEqual([])
  })
})

describe('COMMIT that waits for a synchronous standby', () => {
  let server: PostgresServer
  beforeAll(async () => {
    server = await startPostgres({ settings: { synchronous_commit: 'local' } })
    const pool = new pg.Pool({ connectionString: server.url(), max: 1 })
    const lockstep = new Lockstep(pool)
    await lockstep.migrate()
    // Begins the life of the server, which waits for the standby whatever the setting.
    await lockstep.transaction({}, (tx) => tx.query('CREATE TABLE notes (id text PRIMARY KEY)'))
    await pool.query(`ALTER SYSTEM SET synchronous_standby_names = 'gone'`)
    await pool.end()
    // Nobody can see when a reload has reached every process. From now on, who asks for it waits.
    await server.restart()
  })
  afterAll(() => server.stop('immediate'))

  test('is left alone, and is committed when the server says so', async () => {
    const watcher = bench.open('pg', { url: server.url(), max: 1 })
    const commits = DRIVERS.map((driver) => {
      const { lockstep } = bench.open(driver, { url: server.url(), silenceMs: SILENCE_MS })
      const commit = { pid: 0, settled: false, lookUps: new Set<unknown>(), done: Promise.resolve('') }
      const work = lockstep.transaction({ lock: `Order:${driver}` }, async (tx) => {
        await tx.query('SET LOCAL synchronous_commit = on')
        await note(tx, driver)
        commit.pid = await pidOf(tx)
        return driver
      })
      commit.done = work.finally(() => (commit.settled = true))
      return commit
    })
    const waiting = async (pid: number): Promise<unknown> =>
      (await watcher.query(`SELECT wait_event AS event FROM pg_stat_activity WHERE pid = ${pid}`))[0]?.['event']
    for (const commit of commits) {
      await expect.poll(() => waiting(commit.pid)).toBe('SyncRep')
      // By the second look it was given up for silent, and whatever is done to a session in progress has been done.
      const lookedUp = async (): Promise<number> => {
        const asked = `SELECT query_start::text AS at FROM pg_stat_activity
          WHERE query LIKE 'SELECT pg_terminate_backend(pid)%pid = ${commit.pid} %'`
        for (const { at } of await watcher.query(asked)) commit.lookUps.add(at)
        return commit.lookUps.size
      }
      await expect.poll(lookedUp).toBeGreaterThan(1)
      expect(await waiting(commit.pid)).toBe('SyncRep')
      expect(commit.settled).toBe(false)
    }
    await watcher.query(`ALTER SYSTEM SET synchronous_standby_names = ''`)
    await watcher.query('SELECT pg_reload_conf()')
    expect(await Promise.all(commits.map((commit) => commit.done))).toEqual(DRIVERS)
    expect(await watcher.query('SELECT id FROM notes ORDER BY id')).toEqual(DRIVERS.map((id) => ({ id })))
  })
})

describe.each(DRIVERS)('a connection that falls silent, %s', (driver) => {
  test.each([{ attempts: 1 }, { attempts: 3 }])(
    'in the question whether the server is ready, with %o: later calls ask anew',
    async (retry) => {
      const proxy = await bench.proxy()
      // What is being opened is left to postgres.js to give up.
      const client = bench.open(driver, { url: proxy.url(bench.url), silenceMs: SILENCE_MS, connectSeconds: 1 })
      await client.query('SELECT 1')
      proxy.silence()
      const during = client.lockstep.transaction({ waitMs: 2 * SILENCE_MS, retry }, async () => 'ran')
      expect((await failureOf(during)) as Error).toHaveProperty('code')
      proxy.resume()
      try {
        expect(await client.lockstep.transaction({ waitMs: 10_000 }, async () => 'ran')).toBe('ran')
      } finally {
        // What was opened in the silence would never end.
        proxy.cutAll()
      }
    },
  )

  test('in the question who is in the way: the caller is told, and the key is free', async () => {
    const proxy = await bench.proxy()
    const { lockstep } = bench.open(driver, { url: proxy.url(bench.url), silenceMs: SILENCE_MS })
    await lockstep.transaction({}, async () => undefined)
    const [held, letGo] = [signal(), signal()]
    const holding = bench.open(driver).lockstep.transaction({ lock: 'Order:1' }, async () => {
      held.give()
      await letGo.given
    })
    await held.given
    const asked = signal()
    proxy.onClientData((chunk, connection) => {
      if (chunk.includes('pg_locks')) {
        connection.silence()
        asked.give()
      }
      return 'forward'
    })
    const timedOut = failureOf(lockstep.transaction({ lock: 'Order:1', waitMs: 50 }, async () => 'ran'))
    await asked.given
    proxy.onClientData(undefined)
    letGo.give()
    await holding
    const next = lockstep.transaction({ lock: 'Order:1', waitMs: 5000 }, async () => 'ran')
    const error = await timedOut
    expect(error).toBeInstanceOf(LockTimeoutError)
    expect((error as LockTimeoutError).holders).toEqual([])
    expect(await next).toBe('ran')
  })
})

const WAITER = `
  SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

describe.each(DRIVERS)('a cancel that comes late, %s', (driver) => {
  test('because it was stuck on the wire: hits nobody', async () => {
    const proxy = await bench.proxy()
    const client = bench.open(driver, { url: proxy.url(bench.url), max: 3, silenceMs: SILENCE_MS })
    const { lockstep } = client
    // From the second transaction on, the connection is known to be direct.
    await Promise.all([1, 2, 3].map(() => lockstep.transaction({}, (tx) => tx.query('SELECT pg_sleep(0.01)'))))
    const [held, letGo, stuck] = [signal(), signal(), signal()]
    const holding = bench.open(driver).lockstep.transaction({ lock: 'Order:1' }, async () => {
      held.give()
      await letGo.given
    })
    await held.given
    let late: ProxyConnection | undefined
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes('pg_cancel_backend')) return 'forward'
      late = connection
      stuck.give()
      return 'hold'
    })
    const controller = new AbortController()
    const aborted = failureOf(lockstep.transaction({ lock: 'Order:1', signal: controller.signal }, async () => 'ran'))
    await bench.waiters(1)
    const waiting = await bench.admin.query<{ pid: number }>(WAITER)
    const pid = waiting.rows[0]?.pid ?? 0
    controller.abort()
    await stuck.given
    letGo.give()
    await holding
    expect(await aborted).toBeInstanceOf(LockAbortedError)
    // The cancel still aims at it, and can be as late as it likes: nobody else may ever work there.
    await bench.gone(pid)
    const innocents = [1, 2, 3].map(() => client.query('SELECT pg_sleep(0.05)'))
    late?.release()
    await Promise.all(innocents)
  })

  test('because the pool had no connection for it: is not sent at all', async () => {
    const proxy = await bench.proxy()
    const client = bench.open(driver, { url: proxy.url(bench.url), max: 2 })
    const { lockstep } = client
    await Promise.all([1, 2].map(() => lockstep.transaction({}, (tx) => tx.query('SELECT 1'))))
    const [held, letGo, busy, finish] = [signal(), signal(), signal(), signal()]
    const holding = bench.open(driver).lockstep.transaction({ lock: 'Order:1' }, async () => {
      held.give()
      await letGo.given
    })
    await held.given
    let sent = 0
    proxy.onClientData((chunk) => {
      if (chunk.includes('pg_cancel_backend')) sent++
      return 'forward'
    })
    const other = lockstep.transaction({ lock: 'Stock:1' }, async () => {
      busy.give()
      await finish.given
    })
    await busy.given
    const controller = new AbortController()
    const aborted = failureOf(lockstep.transaction({ lock: 'Order:1', signal: controller.signal }, async () => 'ran'))
    await bench.waiters(1)
    controller.abort()
    letGo.give()
    await holding
    expect(await aborted).toBeInstanceOf(LockAbortedError)
    finish.give()
    await other
    expect(await Promise.all([1, 2].map(() => lockstep.transaction({}, async () => 'well')))).toEqual(['well', 'well'])
    expect(sent).toBe(0)
  })
})
