import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { startPgBouncer } from '../../tools/server/pgbouncer.ts'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { type Client, type ClientOptions, type DriverName, openClient, quiet } from './client.ts'

export { type Client, type ClientOptions, type DriverName, DRIVERS } from './client.ts'

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
      const client = openClient(driver, url, options)
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
