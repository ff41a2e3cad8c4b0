import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { type Standby, startStandby } from '../../tools/server/standby.ts'
import { Lockstep } from '../index.ts'
import { on } from '../observe/index.ts'
import { startProxy } from '../testing/index.ts'

/** Pools whose connections can lead to several servers, and an old primary that still answers. */

const ends: (() => unknown)[] = []
let primary: PostgresServer
let standby: Standby

beforeAll(async () => {
  primary = await startPostgres()
  ends.push(() => primary.stop('immediate'))
  const admin = new pg.Pool({ connectionString: primary.url() })
  await new Lockstep(admin).migrate()
  await admin.query('CREATE TABLE notes (text text)')
  standby = await startStandby(primary)
  ends.push(() => standby.stop('immediate'))
  const replayed = 'SELECT FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_flush_lsn()'
  await vi.waitFor(async () => expect((await admin.query(replayed)).rowCount).toBe(1), { timeout: 60_000 })
  await admin.end()
})

afterAll(async () => {
  for (const end of ends.toReversed()) await end()
})

function open(pool: pg.Pool | postgres.Sql): Lockstep {
  if (pool instanceof pg.Pool) pool.on('error', () => undefined)
  const lockstep = new Lockstep(pool)
  ends.push(async () => {
    await lockstep.close()
    await pool.end()
  })
  return lockstep
}

const write = (lockstep: Lockstep): Promise<unknown> =>
  lockstep.transaction({ lock: 'Note:1' }, (tx) => tx.query(`INSERT INTO notes VALUES ('written')`))

/** As in docs/operating/failures.md. */
function poolOverHosts(hosts: readonly { host: string; port: number }[], options: pg.PoolConfig): pg.Pool {
  let next = 0
  class NextHost extends pg.Client {
    constructor(config: pg.ClientConfig) {
      super({ ...config, ...hosts[next++ % hosts.length] })
    }
  }
  const verify = (client: pg.PoolClient, done: (error?: Error) => void): void => {
    client.query('SELECT pg_is_in_recovery() AS standby', (error: Error | undefined, result: pg.QueryResult) => {
      const refusal = Object.assign(new Error('a standby'), { code: 'ECONNREFUSED' })
      done(error ?? (result.rows[0].standby ? refusal : undefined))
    })
  }
  const all = { ...options, Client: NextHost, verify }
  return new pg.Pool(all as unknown as pg.PoolConfig)
}

function overHosts(driver: 'pg' | 'postgres.js', max: number): pg.Pool | postgres.Sql {
  const { username, pathname } = new URL(primary.url())
  const database = pathname.slice(1)
  const hosts = [standby.server.port, primary.port].map((port) => ({ host: '127.0.0.1', port }))
  if (driver === 'pg') return poolOverHosts(hosts, { user: username, database, max })
  const addresses = hosts.map(({ host, port }) => `${host}:${port}`).join(',')
  return postgres(`postgres://${username}@${addresses}/${database}`, { max, target_session_attrs: 'primary' })
}

describe.each(['pg', 'postgres.js'] as const)('through %s', (driver) => {
  test('a transaction is retried on another connection where the address leads to a standby', async () => {
    let { port } = primary
    const proxy = await startProxy({
      get targetPort() {
        return port
      },
    })
    ends.push(() => proxy.close())
    const url = proxy.url(primary.url())
    const lockstep = open(driver === 'pg' ? new pg.Pool({ connectionString: url, max: 1 }) : postgres(url, { max: 1 }))
    await write(lockstep)
    port = standby.server.port
    proxy.cutAll()
    // The connection to the standby stays open: only a new one comes to the primary.
    const off = on('transaction.retried', ({ reason }) => {
      if (reason === 'LOCKSTEP_STANDBY') port = primary.port
    })
    await write(lockstep)
    off()
    expect(port).toBe(primary.port)
  })

  test('a list of hosts leads to the primary among them', async () => {
    const lockstep = open(overHosts(driver, 3))
    await Promise.all(Array.from({ length: 6 }, () => write(lockstep)))
    await (await lockstep.leases.acquire('Job:1')).release()
  })
})

/** Last, because the standby is the primary afterwards. */
test('a list of hosts leads to the new primary, also while the old one answers and only reads', async () => {
  const locksteps = (['pg', 'postgres.js'] as const).map((driver) => open(overHosts(driver, 1)))
  for (const lockstep of locksteps) await write(lockstep)
  const old = new pg.Client({ connectionString: primary.url() })
  await old.connect()
  await old.query('ALTER SYSTEM SET default_transaction_read_only = on')
  await old.query('SELECT pg_reload_conf()')
  await expect
    .poll(async () => (await old.query('SHOW default_transaction_read_only')).rows[0])
    .toEqual({ default_transaction_read_only: 'on' })
  await standby.promote()
  // The connection to the old primary is there, and answers. A caller that finds out that it only reads removes it from the pool.
  for (const lockstep of locksteps) {
    await expect(write(lockstep)).rejects.toMatchObject({ code: '25006' })
    await expect.poll(() => write(lockstep).catch(({ code }: { code: string }) => code)).toMatchObject({ rowCount: 1 })
  }
  await old.end()
  const now = new pg.Client({ connectionString: standby.server.url() })
  await now.connect()
  const { rows } = await now.query<{ count: number }>('SELECT count(*)::int AS count FROM lockstep.epochs')
  await now.end()
  expect(rows).toEqual([{ count: 2 }])
})
