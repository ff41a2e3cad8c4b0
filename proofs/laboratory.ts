import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { pgBouncerAvailable, startPgBouncer } from '../tools/server/pgbouncer.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import { type Proxy, startProxy } from 'pg-lockstep/testing'
import { APPLICATION, WORKERS } from './clients.ts'
import { BLOCKERS, DROP_SCHEMA, HELD, VERSION } from './laboratory.sql.ts'
import { refuseProduction } from './production.ts'
import { type Scenario, SCHEMA } from './scenarios/scenario.ts'

/** Where a run takes place. */
export interface Laboratory {
  readonly description: string
  readonly admin: pg.Pool
  readonly proxy: Proxy
  readonly url: string
  readonly proxiedUrl: string
  readonly pooledUrl: string | undefined
  readonly pooler: pg.Pool | undefined
  readonly ownServer: { restart(): Promise<void> } | undefined
  /** Whom the workers wait for. */
  blockers(): Promise<string[]>
  /** What workers that are closed have left. */
  held(): Promise<string[]>
  close(): Promise<void>
}

export interface LaboratoryOptions {
  /** A server of the user's. Absent: one of our own, which is crashed and slowed down as well. */
  readonly against?: string | undefined
  /** Although it looks like one on which people depend. */
  readonly anyway?: boolean
}

/** Opens it: everything stands in a schema of its own, which is made anew and goes in the end. */
export async function openLaboratory(
  scenarios: readonly Scenario[],
  { against, anyway = false }: LaboratoryOptions,
): Promise<Laboratory> {
  const closing: (() => Promise<unknown>)[] = []
  const close = async (): Promise<void> => {
    for (const each of closing.toReversed()) await each()
  }
  try {
    // With fsync: without it PostgreSQL leaves out `commit_delay`, and with it what a COMMIT costs.
    const server =
      against === undefined ? await startPostgres({ durable: true, settings: { max_connections: '200' } }) : undefined
    if (server !== undefined) closing.push(() => server.stop('immediate'))
    const url = server?.url() ?? against ?? ''
    const admin = poolOn(url, `${APPLICATION}, the laboratory`)
    closing.push(() => admin.end())
    if (server === undefined && !anyway) await refuseProduction(admin, url)
    await admin.query(DROP_SCHEMA)
    closing.push(() => admin.query(DROP_SCHEMA))
    await new Lockstep(admin, { schema: SCHEMA }).migrate()
    for (const { tables } of scenarios) await admin.query(tables)

    const target = new URL(url)
    const proxy = await startProxy({ targetPort: Number(target.port || 5432), targetHost: target.hostname })
    closing.push(() => proxy.close())
    // A pooler in front of a server with passwords would need them; in front of ours it needs none.
    const bouncer =
      server !== undefined && pgBouncerAvailable()
        ? await startPgBouncer({
            postgresPort: server.port,
            poolMode: 'transaction',
            defaultPoolSize: 20,
            // By itself it would not look for a server that was away before 15 s are over.
            settings: { server_login_retry: '1' },
          })
        : undefined
    if (bouncer !== undefined) closing.push(() => bouncer.stop())
    const pooler = bouncer === undefined ? undefined : poolOn(bouncer.url('pgbouncer'), APPLICATION)
    if (pooler !== undefined) closing.push(() => pooler.end())

    const { rows } = await admin.query<{ version: string }>(VERSION)
    return {
      description: `PostgreSQL ${rows[0]?.version}, ${server === undefined ? target.host : 'embedded'}`,
      admin,
      proxy,
      url,
      proxiedUrl: proxy.url(url),
      pooledUrl: bouncer?.url('postgres'),
      pooler,
      ownServer: server && { restart: () => server.restart('immediate') },
      blockers: async () =>
        (await admin.query<{ blocker: string }>(BLOCKERS, [WORKERS])).rows.map(({ blocker }) => blocker),
      held: async () => (await admin.query<{ held: string }>(HELD, [WORKERS])).rows.map(({ held }) => held),
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}

function poolOn(connectionString: string, application: string): pg.Pool {
  const pool = new pg.Pool({ connectionString, application_name: application, max: 4, connectionTimeoutMillis: 10_000 })
  return pool.on('error', () => undefined)
}
