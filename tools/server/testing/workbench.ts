import { inspect } from 'node:util'
import pg from 'pg'
import postgres, { type Sql } from 'postgres'
import { afterAll, afterEach, beforeAll, expect } from 'vitest'
import { Lockstep, type LockstepOptions, type Transaction } from '../../../src/index.ts'
import { on } from '../../../src/observe/index.ts'
import {
  assertNoLeaks,
  type Proxy,
  type ProxyConnection,
  startProxy,
  type Verdict,
} from '../../../src/testing/index.ts'
import { type TestDatabase, testDatabase, testServer } from '../testDatabase.ts'
import { cleanUps } from './cleanUps.ts'

/** The two drivers, for `describe.each`. */
export const DRIVERS = ['pg', 'postgres.js'] as const
export type DriverName = (typeof DRIVERS)[number]

export interface ClientOptions extends LockstepOptions {
  /** Default: the file's own database. */
  readonly url?: string
  /** The size of the pool. Default 4. */
  readonly max?: number
  /** After which time postgres.js gives up a connection that it opens. Default 30. */
  readonly connectSeconds?: number
}

/** One Lockstep with a pool of its own, as another process would have it. */
export interface Client {
  readonly lockstep: Lockstep
  readonly pool: pg.Pool | Sql
  /** A second Lockstep on the same pool. */
  readonly again: (options?: LockstepOptions) => Lockstep
  /** Runs a query on the same pool, outside Lockstep. */
  readonly query: (text: string) => Promise<Record<string, unknown>[]>
  /** Runs the function in a transaction as the driver's own users open it: what `join()` is for. */
  readonly begin: <T>(options: string, work: (client: object) => Promise<T>) => Promise<T>
  readonly end: () => Promise<void>
}

/** The file's database, clients and sessions on it, a table, and a view of the server. */
export interface Workbench extends TestDatabase {
  /** Straight to the server, for looking at it. */
  readonly admin: pg.Pool
  /** Runs after the test; the last one registered runs first. */
  cleanUp(end: () => unknown): void
  /** A session outside Lockstep. Closed after the test, whatever it is doing. */
  session(url?: string): Promise<pg.Client>
  /** Closed after the test. */
  open(driver: DriverName, options?: ClientOptions): Client
  /** In front of the server; closed after the test. */
  proxy(): Promise<Proxy>
  /** A client that reaches the server through a proxy of its own. */
  proxied(driver: DriverName, options?: Omit<ClientOptions, 'url'>): Promise<Client & { readonly proxy: Proxy }>
  /** What is written in the table, sorted. It is emptied after each test. */
  notes(): Promise<string[]>
  /** How many advisory locks are granted in the file's database. */
  locksHeld(): Promise<number>
  /** Resolves when so many backends wait for an advisory lock. */
  waiters(count: number): Promise<void>
  /** Resolves when so many backends of this database wait for a lock of any kind; with `query`, of those whose statement is LIKE it. */
  lockWaits(count: number, query?: string): Promise<void>
  /** Resolves when that backend waits for a lock of any kind. */
  blocked(pid: () => number): Promise<void>
  /** Resolves when the backend is gone. */
  gone(pid: number): Promise<void>
}

/** A signal that one part of a test gives to another. */
export interface Signal {
  readonly given: Promise<void>
  give(): void
}

export function signal(): Signal {
  let give = (): void => undefined
  const given = new Promise<void>((resolve) => (give = resolve))
  return { given, give }
}

/**
 * Strikes the next chunk of a client that contains the text, and no other. Resolves with its connection. `silence` lets it pass and loses
 * everything after it on that connection.
 */
export function strikeNext(proxy: Proxy, text: string, how: Verdict | 'silence'): Promise<ProxyConnection> {
  return new Promise((resolve) => {
    proxy.onClientData((chunk, connection) => {
      if (!chunk.includes(text)) return 'forward'
      proxy.onClientData(undefined)
      resolve(connection)
      if (how !== 'silence') return how
      connection.silence()
      return 'forward'
    })
  })
}

/** Writes into the table of the workbench. */
export async function note(tx: Transaction, id: string): Promise<void> {
  await tx.query('INSERT INTO notes VALUES ($1)', [id])
}

export async function pidOf(tx: Transaction): Promise<number> {
  const { rows } = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  return rows[0]?.pid ?? 0
}

/** Makes the first call: it tries the locks, with statements and connections of its own that a test does not want to count. */
export async function firstCall(lockstep: Lockstep): Promise<void> {
  await lockstep.transaction({}, async () => undefined)
}

/** The reasons of the retries that happen while the function runs. */
export async function retriesDuring<T>(work: () => Promise<T>): Promise<{ value: T; reasons: (string | undefined)[] }> {
  const reasons: (string | undefined)[] = []
  const stop = on('transaction.retried', ({ reason }) => reasons.push(reason))
  try {
    return { value: await work(), reasons }
  } finally {
    stop()
  }
}

/** How a call failed; fails itself where it did not. */
export function failureOf(pending: Promise<unknown>): Promise<unknown> {
  const failure = pending.then(
    (value) => {
      throw new Error(`It did not fail, but gave ${inspect(value)}`)
    },
    (error: unknown) => error,
  )
  // A later caller receives the error then.
  failure.catch(() => undefined)
  return failure
}

const LEAKERS = `
  SELECT pg_terminate_backend(pid) FROM pg_locks
   WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

/** A workbench in a database for this test file; with `ownServer`, on a server that no other file uses. */
export async function testBench(options: { readonly ownServer?: boolean } = {}): Promise<Workbench> {
  return workbench(await (options.ownServer === true ? testServer() : testDatabase()))
}

/** Sets a bench up in the file's database. After each test nothing must be locked. */
export function workbench(database: TestDatabase): Workbench {
  const admin = new pg.Pool({ connectionString: database.url, max: 3, application_name: 'workbench' })
  const clients = new Set<Client>()
  const proxies = new Set<Proxy>()

  const locks = async (granted: boolean): Promise<number> => {
    const { rows } = await admin.query<{ n: number }>(
      `SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND granted = $1
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
      [granted],
    )
    return rows[0]?.n ?? -1
  }

  beforeAll(() => admin.query('CREATE TABLE notes (id text PRIMARY KEY)'))
  afterEach(async () => {
    const ending = [...clients.values(), ...proxies.values()]
    clients.clear()
    proxies.clear()
    try {
      await assertNoLeaks(admin, { kinds: ['lock'], graceMs: 60_000 })
    } finally {
      // One test's leak is not the next one's fault.
      await admin.query(LEAKERS)
    }
    for (const each of ending) await ('end' in each ? each.end() : each.close())
    await admin.query('TRUNCATE notes')
  })
  afterAll(() => admin.end())
  // Hooks run last to first: before the locks are counted.
  const cleanUp = cleanUps()

  return {
    ...database,
    admin,
    cleanUp,
    async session(url = database.url) {
      const client = new pg.Client({ connectionString: url })
      // Tests crash servers and end sessions.
      client.on('error', () => undefined)
      await client.connect()
      cleanUp(() => client.end())
      return client
    },
    open(driver, options = {}) {
      const { url = database.url, max = 4, connectSeconds, ...rest } = options
      const pooled = url === database.pooledUrl
      const client =
        driver === 'pg' ? pgClient(url, max, rest) : postgresJsClient(url, max, rest, pooled, connectSeconds)
      clients.add(client)
      return client
    },
    async proxy() {
      const { hostname, port } = new URL(database.url)
      const proxy = await startProxy({ targetHost: hostname, targetPort: Number(port || 5432), lingerMs: 20 })
      proxies.add(proxy)
      return proxy
    },
    async proxied(driver, options) {
      const proxy = await this.proxy()
      return { proxy, ...this.open(driver, { ...options, url: proxy.url(database.url) }) }
    },
    async notes() {
      const { rows } = await admin.query<{ id: string }>('SELECT id FROM notes ORDER BY id')
      return rows.map((row) => row.id)
    },
    locksHeld: () => locks(true),
    waiters: (count) => expect.poll(() => locks(false)).toBe(count),
    async lockWaits(count, query = '%') {
      const waiting = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1`
      await expect.poll(async () => (await admin.query(waiting, [query])).rowCount).toBe(count)
    },
    async blocked(pid) {
      const waiting = `SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'`
      await expect.poll(async () => (await admin.query(waiting, [pid()])).rowCount).toBe(1)
    },
    async gone(pid) {
      const alive = async (): Promise<number | null> =>
        (await admin.query('SELECT 1 FROM pg_stat_activity WHERE pid = $1', [pid])).rowCount
      await expect.poll(alive).toBe(0)
    },
  }
}

function pgClient(url: string, max: number, options: LockstepOptions): Client {
  const pool = new pg.Pool({ connectionString: url, max })
  const lockstep = new Lockstep(pool, options)
  return {
    lockstep,
    pool,
    again: (more) => new Lockstep(pool, more),
    query: async (text) => (await pool.query<Record<string, unknown>>(text)).rows,
    async begin(how, work) {
      const client = await pool.connect()
      try {
        await client.query(`BEGIN ${how}`)
        const value = await work(client)
        await client.query('COMMIT')
        return value
      } catch (error) {
        await client.query('ROLLBACK')
        throw error
      } finally {
        client.release()
      }
    },
    async end() {
      await lockstep.close()
      if (!pool.ending) await pool.end()
    },
  }
}

function postgresJsClient(
  url: string,
  max: number,
  options: LockstepOptions,
  pooled: boolean,
  connectSeconds = 30,
): Client {
  // A pause before each new connection would make the tests longer and nothing else. Behind a pooler, the next transaction can have a
  // session that knows no prepared statement of this one.
  const settings = { onnotice: () => {}, backoff: () => 0.005, connect_timeout: connectSeconds, prepare: !pooled }
  const sql = postgres(url, { max, ...settings })
  const lockstep = new Lockstep(sql, options)
  return {
    lockstep,
    pool: sql,
    again: (more) => new Lockstep(sql, more),
    query: async (text) => [...(await sql.unsafe<Record<string, unknown>[]>(text))],
    begin: async (how, work) => (await sql.begin(how, (client) => work(client))) as Awaited<ReturnType<typeof work>>,
    async end() {
      await lockstep.close()
      // After a connection was lost in a query, postgres.js waits for the end of the timeout.
      await sql.end({ timeout: 0.1 })
    },
  }
}
