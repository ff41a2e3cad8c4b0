import type { Sql } from 'postgres'
import { Lockstep, type LockstepOptions } from 'pg-lockstep'
import pg from 'pg'
import postgres from 'postgres'

/** The two drivers. */
export const DRIVERS = ['pg', 'postgres'] as const
export type DriverName = (typeof DRIVERS)[number]

export interface ClientOptions extends LockstepOptions {
  readonly poolSize?: number
  /** The name of its sessions. */
  readonly application?: string
  /** How long the driver itself waits for a connection; by default as long as it likes. */
  readonly connectMs?: number
  /** Of another version of the library. */
  readonly Lockstep?: typeof Lockstep
}

/** One Lockstep with its pool. */
export interface Client {
  readonly lockstep: Lockstep
  readonly pool: pg.Pool | Sql
  /** Runs a query outside Lockstep on the same pool. */
  query(text: string): Promise<Record<string, unknown>[]>
  close(): Promise<void>
}

/** A client of its own, as another process has it. */
export function openClient(driver: DriverName, url: string, options: ClientOptions = {}): Client {
  const { poolSize = 2, application, connectMs, Lockstep: Loaded = Lockstep, ...rest } = options
  if (driver === 'pg') {
    const named = application === undefined ? {} : { application_name: application }
    const timeout = connectMs === undefined ? {} : { connectionTimeoutMillis: connectMs }
    const pool = quiet(new pg.Pool({ connectionString: url, max: poolSize, ...named, ...timeout }))
    const lockstep = new Loaded(pool, rest)
    return {
      lockstep,
      pool,
      query: async (text) => (await pool.query<Record<string, unknown>>(text)).rows,
      close: async () => {
        await lockstep.close()
        await pool.end()
      },
    }
  }
  const sql = postgres(url, {
    max: poolSize,
    // A pooler in transaction mode knows nothing of prepared statements.
    prepare: false,
    onnotice: () => undefined,
    backoff: () => 0.01,
    // postgres.js handles no error of its question for array types: a session that ends at that moment ends the process.
    fetch_types: false,
    ...(connectMs === undefined ? {} : { connect_timeout: connectMs / 1000 }),
    ...(application === undefined ? {} : { connection: { application_name: application } }),
  })
  const lockstep = new Loaded(sql, rest)
  return {
    lockstep,
    pool: sql,
    query: async (text) => [...(await sql.unsafe(text))],
    close: async () => {
      await lockstep.close()
      await sql.end({ timeout: 1 })
    },
  }
}

/** An idle connection that the server ends is none of the attack's business. */
export function quiet(pool: pg.Pool): pg.Pool {
  return pool.on('error', () => undefined)
}
