import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { pgBouncerAvailable, startPgBouncer } from '../tools/server/pgbouncer.ts'
import { type Cluster, startCluster } from '../tools/server/cluster.ts'
import { startPostgres } from '../tools/server/postgres.ts'
import { type Proxy, startProxy } from 'pg-lockstep/testing'
import { APPLICATION, WORKERS } from './clients.ts'
import { BLOCKERS, DROP_SCHEMA, HELD, TIMELINES, VERSION } from './laboratory.sql.ts'
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
  readonly cluster: Cluster | undefined
  /** The timeline of the primary, and how many of them Lockstep has noticed. */
  timelines(): Promise<{ readonly timeline: number; readonly noticed: number }>
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
  /** Three servers of our own under Patroni, in place of one, with this replication. */
  readonly cluster?: 'synchronous' | 'asynchronous' | undefined
  /** Whether PgBouncer is started as well, where it is installed. Default: yes. */
  readonly pooler?: boolean
  /** Of the server of our own. */
  readonly settings?: Readonly<Record<string, string>>
}

/** After an asynchronous failover leases wait for this time: a little longer than those of the lab live. */
const MAX_TTL_MS = 1000
const NO_TIMELINE = { timeline: 0, noticed: 0 }

/** Opens it: everything is in a schema of its own, which is created here and dropped at the end. */
export async function openLaboratory(
  scenarios: readonly Scenario[],
  { against, anyway = false, cluster: replication, pooler: withPooler = true, settings = {} }: LaboratoryOptions,
): Promise<Laboratory> {
  const closing: (() => Promise<unknown>)[] = []
  const close = async (): Promise<void> => {
    for (const each of closing.toReversed()) await each()
  }
  try {
    // With fsync: without it PostgreSQL leaves out `commit_delay`, and with it what a COMMIT costs.
    const cluster =
      replication === undefined
        ? undefined
        : await startCluster({ synchronous: replication === 'synchronous', settings: { max_connections: '200' } })
    if (cluster !== undefined) closing.push(() => cluster.stop())
    const server =
      against === undefined && cluster === undefined
        ? await startPostgres({ durable: true, settings: { max_connections: '200', ...settings } })
        : undefined
    if (server !== undefined) closing.push(() => server.stop('immediate'))
    const url = server?.url() ?? cluster?.url() ?? against ?? ''
    const admin = poolOn(url, `${APPLICATION}, the laboratory`)
    closing.push(() => admin.end())
    if (against !== undefined && !anyway) await refuseProduction(admin, url)
    await admin.query(DROP_SCHEMA)
    closing.push(() => admin.query(DROP_SCHEMA))
    const failover = cluster === undefined ? {} : { maxTtlMs: MAX_TTL_MS, synchronousFailover: cluster.synchronous }
    await new Lockstep(admin, { schema: SCHEMA }).migrate(failover)
    for (const { tables } of scenarios) await admin.query(tables)

    const target = new URL(url)
    const proxy = await startProxy({ targetPort: Number(target.port || 5432), targetHost: target.hostname })
    closing.push(() => proxy.close())
    // A pooler in front of a server with passwords would need them; in front of ours it needs none.
    const bouncer =
      withPooler && against === undefined && pgBouncerAvailable()
        ? await startPgBouncer({
            postgresPort: Number(target.port),
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
      description: `PostgreSQL ${rows[0]?.version}, ${placeOf(cluster, against)}`,
      admin,
      proxy,
      url,
      proxiedUrl: proxy.url(url),
      pooledUrl: bouncer?.url('postgres'),
      pooler,
      cluster,
      ownServer: server && { restart: () => server.restart('immediate') },
      timelines: async () =>
        (await admin.query<{ timeline: number; noticed: number }>(TIMELINES)).rows[0] ?? NO_TIMELINE,
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

function placeOf(cluster: Cluster | undefined, against: string | undefined): string {
  if (against !== undefined) return new URL(against).host
  if (cluster === undefined) return 'embedded'
  return `three under Patroni, ${cluster.synchronous ? 'synchronous' : 'asynchronous'} replication`
}

function poolOn(connectionString: string, application: string): pg.Pool {
  const pool = new pg.Pool({ connectionString, application_name: application, max: 4, connectionTimeoutMillis: 10_000 })
  return pool.on('error', () => undefined)
}
