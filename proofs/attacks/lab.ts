import type { Sql } from 'postgres'
import { Lockstep, type LockstepOptions } from 'pg-lockstep'
import pg from 'pg'
import postgres from 'postgres'
import { startPgBouncer } from '../../tools/server/pgbouncer.ts'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'

/** The two drivers. */
export const DRIVERS = ['pg', 'postgres'] as const
export type DriverName = (typeof DRIVERS)[number]

/** Straight to the server, or through PgBouncer in transaction mode. */
export const ROUTES = ['direct', 'pooled'] as const
export type Route = (typeof ROUTES)[number]

/** A server of its own, a pooler in front of it, migrated: what an attack plays in. */
export interface Lab {
  readonly server: PostgresServer
  /** Straight to the server, as the owner of the database. */
  readonly admin: pg.Pool
  url(route: Route): string
  /** Connections of the `pg` driver straight to the server, for those who do without Lockstep; ended with the lab. */
  pool(max: number): pg.Pool
  /** A client of its own: one Lockstep with one pool, as another process would have it. */
  client(driver: DriverName, url: string, options?: ClientOptions): Client
  close(): Promise<void>
}

export interface ClientOptions extends LockstepOptions {
  readonly poolSize?: number
  /** How long the driver itself waits for a connection; by default as long as it likes. */
  readonly connectMs?: number
  /** Whether postgres.js asks every new connection for types. Reset while it does, it ends the process: porsager/postgres has nobody to tell. */
  readonly fetchTypes?: boolean
}

/** One Lockstep with its pool. */
export interface Client {
  readonly lockstep: Lockstep
  readonly pool: pg.Pool | Sql
  /** Runs a query outside Lockstep on the same pool. */
  query(text: string): Promise<Record<string, unknown>[]>
  close(): Promise<void>
}

const DATABASE = 'postgres'

/** Opens a lab. Its server is real, and so is everything that is done to it. */
export async function openLab(settings: Record<string, string> = {}, binariesFrom?: string): Promise<Lab> {
  const server = await startPostgres({
    settings: { max_connections: '200', ...settings },
    ...(binariesFrom !== undefined && { binariesFrom }),
  })
  const bouncer = await startPgBouncer({ postgresPort: server.port, poolMode: 'transaction', defaultPoolSize: 40 })
  const admin = quiet(new pg.Pool({ connectionString: server.url(DATABASE), application_name: 'lab' }))
  await new Lockstep(admin).migrate()
  const clients = new Set<Client>()
  const pools = new Set<pg.Pool>()
  return {
    server,
    admin,
    url: (route) => (route === 'direct' ? server.url(DATABASE) : bouncer.url(DATABASE)),
    pool(max) {
      const pool = quiet(new pg.Pool({ connectionString: server.url(DATABASE), max }))
      pools.add(pool)
      return pool
    },
    client(driver, url, options = {}) {
      const client = makeClient(driver, url, options)
      clients.add(client)
      return { ...client, close: () => (clients.delete(client), client.close()) }
    },
    async close() {
      await Promise.all([...clients].map((client) => client.close()))
      await Promise.all([...pools].map((pool) => pool.end()))
      await admin.end()
      await bouncer.stop()
      await server.stop()
    },
  }
}

function makeClient(driver: DriverName, url: string, options: ClientOptions): Client {
  const { poolSize = 2, connectMs, fetchTypes = true, ...rest } = options
  if (driver === 'pg') {
    const timeout = connectMs === undefined ? {} : { connectionTimeoutMillis: connectMs }
    const pool = quiet(new pg.Pool({ connectionString: url, max: poolSize, ...timeout }))
    const lockstep = new Lockstep(pool, rest)
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
  // A pooler in transaction mode knows nothing of prepared statements.
  const timeout = connectMs === undefined ? {} : { connect_timeout: connectMs / 1000 }
  const quietly = { prepare: false, onnotice: () => undefined, backoff: () => 0.01, fetch_types: fetchTypes }
  const sql = postgres(url, { max: poolSize, ...quietly, ...timeout })
  const lockstep = new Lockstep(sql, rest)
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
function quiet(pool: pg.Pool): pg.Pool {
  return pool.on('error', () => undefined)
}
