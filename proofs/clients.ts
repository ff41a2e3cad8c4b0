import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { openAtOnce } from './checkers/openAtOnce.ts'
import type { Form } from './history.ts'
import type { WorkerPlan } from './messages.ts'
import { SCHEMA } from './scenarios/scenario.ts'

/** It is there in some applications, and in others not. */
const postgres = await import('postgres').then(
  (module) => module.default,
  () => undefined,
)
export const postgresJsIsThere = postgres !== undefined

/** How our sessions are called. */
export const APPLICATION = 'lockstep prove'
/** Those of the workers: what faults strike at, and what must be gone in the end. A pattern of LIKE. */
export const WORKERS = `${APPLICATION}: %`
/** Those of one of them. */
export function sessionsOf(by: string): string {
  return `${APPLICATION}: ${by.replaceAll("'", '+')}`
}
/** A statement that waits for another session takes longer. */
const TIMID_MS = 10
/** How long an answer may be out before its connection is given up: half-open ones are found within the round. */
const SILENCE_MS = 1500

/** A machine that is busy takes its time to open connections. */
const COUNTED_WITHIN_MS = 15_000
/** Those who do it by hand would wait forever for an answer that does not come. */
const NAIVE_TIMEOUT_MS = 3000

interface Timeouts {
  readonly statement_timeout?: number
  readonly query_timeout?: number
}

export interface Client {
  readonly lockstep: Lockstep
  readonly pool: pg.Pool
}

export interface Clients {
  readonly usual: Client
  /** With a statement timeout that strikes. */
  readonly timid: Client
  /** How many connections did not come back. */
  close(): Promise<number>
}

/** What a worker has of connections in a round. */
export function openClients({ by, driver, url, directUrl, poolSize }: WorkerPlan, form: Form): Clients {
  // Who does it by hand does it with pg.
  const kind = form === 'naive' ? 'pg' : driver
  const timeouts = form === 'naive' ? { query_timeout: NAIVE_TIMEOUT_MS } : {}
  const usual = connect(kind, by, url, poolSize, timeouts)
  const timid = connect(kind, by, directUrl, 4, { ...timeouts, statement_timeout: TIMID_MS })
  if (form === 'naive') {
    // Otherwise a session that is ended would end the process, and not only the transaction.
    for (const { pool } of [usual, timid]) pool.on('connect', (client) => client.on('error', () => undefined))
  }
  return {
    usual,
    timid,
    close: async () => (await Promise.all([usual.close(), timid.close()])).reduce((sum, out) => sum + out),
  }
}

function connect(
  driver: 'pg' | 'postgres',
  by: string,
  url: string,
  max: number,
  timeouts: Timeouts,
): Client & Pick<Clients, 'close'> {
  const options = { schema: SCHEMA, silenceMs: SILENCE_MS, waitMs: 10_000 }
  const pool = new pg.Pool({
    connectionString: url,
    max,
    application_name: sessionsOf(by),
    connectionTimeoutMillis: 5000,
    ...timeouts,
  })
  // An idle connection that was ended is found when it is wanted.
  pool.on('error', () => undefined)
  if (driver === 'pg' || postgres === undefined) {
    const lockstep = new Lockstep(pool, options)
    return {
      lockstep,
      pool,
      async close() {
        await lockstep.close()
        const out = await settled(() => pool.totalCount - pool.idleCount)
        await ended(pool.end())
        return out
      },
    }
  }
  const sql = postgres(url, {
    max,
    prepare: false,
    onnotice: () => undefined,
    backoff: () => 0.05,
    connect_timeout: 5,
    connection: {
      application_name: sessionsOf(by),
      ...(timeouts.statement_timeout === undefined ? {} : { statement_timeout: timeouts.statement_timeout }),
    },
  })
  const lockstep = new Lockstep(sql, options)
  return {
    lockstep,
    pool,
    async close() {
      const out = max - (await openTransactions(lockstep, max))
      await lockstep.close()
      await ended(Promise.all([sql.end({ timeout: 1 }), pool.end()]))
      return out
    },
  }
}

/** What it comes down to within two seconds: connections that are being closed are still counted for a moment. */
async function settled(count: () => number): Promise<number> {
  for (let tries = 0; tries < 40 && count() > 0; tries++) await new Promise((resolve) => setTimeout(resolve, 50))
  return count()
}

/** postgres.js does not tell how many connections it has: as many transactions can be open as there are. */
function openTransactions(lockstep: Lockstep, max: number): Promise<number> {
  return openAtOnce(max, COUNTED_WITHIN_MS, (held) =>
    lockstep
      .transaction({}, held)
      // A caller that did not wait for a connection in vain had one.
      .catch((error: { code?: string }) => (error.code === 'LOCKSTEP_LOCK_TIMEOUT' ? undefined : held())),
  )
}

/** A pool that does not end is reported with what it did not release. */
async function ended(ending: Promise<unknown>): Promise<void> {
  await Promise.race([ending, new Promise((resolve) => setTimeout(resolve, 3000).unref())])
}
