import pg from 'pg'
import postgres from 'postgres'
import { expect } from 'vitest'
import { Lockstep } from '../../../src/index.ts'
import { type Proxy, startProxy } from '../../../src/testing/index.ts'
import { type PostgresOptions, type PostgresServer, startPostgres } from '../postgres.ts'
import { type Standby, startStandby, type StandbyOptions } from '../standby.ts'
import { cleanUps } from './cleanUps.ts'

/** What is open on one server. */
export interface OpenServer {
  readonly lockstep: Lockstep
  readonly pool: pg.Pool
}

/** An address that leads to one server, and then to another. */
export interface Address {
  readonly url: string
  readonly proxy: Proxy
  leadTo(other: PostgresServer): void
}

/** Servers of the test's own, standbys, and what is open on them. Everything is stopped after the test. */
export interface ServerBench {
  /** Runs after the test; the last one registered runs first. */
  cleanUp(end: () => unknown): void
  start(options?: PostgresOptions): Promise<PostgresServer>
  standby(primary: PostgresServer, options?: StandbyOptions): Promise<Standby>
  open(url: string): OpenServer
  openPostgresJs(url: string): Lockstep
  address(server: PostgresServer): Promise<Address>
  /** Resolves when the standby has replayed everything that is on the primary. */
  caughtUp(primary: PostgresServer): Promise<void>
  /** From now on the standby receives nothing more. */
  cutOff(standby: Standby): Promise<void>
}

/** Called at the top of a file. `defaults` are for every server that a test starts. */
export function serverBench(defaults: PostgresOptions = {}): ServerBench {
  const cleanUp = cleanUps()
  const open = (url: string): OpenServer => {
    const pool = new pg.Pool({ connectionString: url, max: 8 })
    // Connections are cut on purpose.
    pool.on('error', () => undefined)
    const lockstep = new Lockstep(pool)
    cleanUp(async () => {
      await lockstep.close()
      await pool.end()
    })
    return { lockstep, pool }
  }
  return {
    cleanUp,
    open,
    async start(options) {
      const server = await startPostgres({ ...defaults, ...options })
      cleanUp(() => server.stop('immediate'))
      return server
    },
    async standby(primary, options) {
      const standby = await startStandby(primary, {}, options)
      cleanUp(() => standby.stop('immediate'))
      return standby
    },
    openPostgresJs(url) {
      const sql = postgres(url, { max: 8, onnotice: () => undefined })
      const lockstep = new Lockstep(sql)
      cleanUp(async () => {
        await lockstep.close()
        await sql.end({ timeout: 1 })
      })
      return lockstep
    },
    async address(server) {
      let { port } = server
      const proxy = await startProxy({
        get targetPort() {
          return port
        },
      })
      cleanUp(() => proxy.close())
      const leadTo = (other: PostgresServer): void => {
        port = other.port
        proxy.cutAll()
      }
      return { url: proxy.url(server.url()), proxy, leadTo }
    },
    async caughtUp(primary) {
      const { pool } = open(primary.url())
      const text = 'SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_flush_lsn()'
      await expect.poll(async () => (await pool.query(text)).rowCount).toBe(1)
    },
    async cutOff({ server }) {
      const { pool } = open(server.url())
      await pool.query(`ALTER SYSTEM SET primary_conninfo = ''`)
      await pool.query('SELECT pg_reload_conf()')
      await expect.poll(async () => (await pool.query('SELECT FROM pg_stat_wal_receiver')).rowCount).toBe(0)
    },
  }
}
