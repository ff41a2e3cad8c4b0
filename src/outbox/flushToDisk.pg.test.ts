import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { pgBouncerAvailable, startPgBouncer } from '../../tools/server/pgbouncer.ts'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { type ProxyConnection, startProxy } from '../testing/index.ts'
import { cleanUps } from '../../tools/server/testing/cleanUps.ts'
import { dispatching } from '../../tools/server/testing/dispatching.ts'
import { failureOf, signal } from '../../tools/server/testing/workbench.ts'
import { FlushUnconfirmedError, Lockstep } from '../index.ts'
import { driverFor, withConnection } from '../postgres/index.ts'
import { flush } from './flushToDisk.ts'

/** Events are sent only after they are on disk. */

const cleanUp = cleanUps()

const WAITING = `SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%outbox_flush%'`
const PROBE = `BEGIN; SET LOCAL synchronous_commit = 'on'; SELECT pg_logical_emit_message(true, 'probe', ''); COMMIT`
const STANDBYS = `SELECT current_setting('synchronous_standby_names') AS names`
const PROBE_WAITING = `SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%''probe''%'`

/** Its synchronous standby is away: a commit with synchronous_commit = on waits until it is canceled. */
let server: PostgresServer
let admin: pg.Pool
beforeAll(async () => {
  server = await startPostgres({ settings: { synchronous_commit: 'local' } })
  admin = new pg.Pool({ connectionString: server.url(), max: 4 })
  const lockstep = new Lockstep(admin)
  await lockstep.migrate()
  await lockstep.transaction({}, async () => undefined)
  await admin.query(`ALTER SYSTEM SET synchronous_standby_names = 'away'`)
  await admin.query('SELECT pg_reload_conf()')
})
afterAll(async () => {
  await admin.end()
  await server.stop('immediate')
})

/** Whether a commit waits for the standby by now: the sessions learn it from the checkpointer, a moment after the setting is shown. */
async function commitWaits(): Promise<boolean> {
  const ended = admin.query(PROBE).then(() => true)
  for (;;) {
    const { rows } = await admin.query<{ pid: number }>(PROBE_WAITING)
    if (rows[0] !== undefined) {
      await admin.query('SELECT pg_cancel_backend($1)', [rows[0].pid])
      return ended
    }
    if (await Promise.race([ended, Promise.resolve(false)])) return false
  }
}

test.each(['pg', 'postgres'])('rejects a flush whose wait for the standby was canceled, %s', async (name) => {
  await expect.poll(commitWaits).toBe(true)
  const sql = postgres(server.url(), { max: 2, onnotice: () => undefined })
  try {
    const driver = driverFor(name === 'pg' ? admin : sql)
    const flushing = failureOf(withConnection(driver, (connection) => flush(connection, 'lockstep')))
    let waiting: { pid: number }[] = []
    await expect.poll(async () => (waiting = (await admin.query<{ pid: number }>(WAITING)).rows).length).toBe(1)
    await admin.query('SELECT pg_cancel_backend($1)', [waiting[0]?.pid])
    expect(await flushing).toBeInstanceOf(FlushUnconfirmedError)
  } finally {
    await sql.end({ timeout: 1 })
  }
})

/**
 * Where commits wait for a standby, the flush is a message of its own. A pooler holds it while the server crashes and comes back without that
 * setting. Then it succeeds, in the next server epoch, in which the event that was read is gone.
 */
test.skipIf(!pgBouncerAvailable())('does not send what a crash took between the read and the flush', async () => {
  // Neither the WAL writer nor autovacuum flushes the event.
  const crashing = await startPostgres({ settings: { wal_writer_delay: '10s', autovacuum: 'off' } })
  cleanUp(() => crashing.stop('immediate'))
  const session = async (): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: crashing.url() })
    client.on('error', () => undefined)
    await client.connect()
    cleanUp(() => client.end())
    return client
  }
  const enqueue = (client: pg.Client, payload: string): Promise<unknown> =>
    client.query(`SELECT lockstep.enqueue('t', 'a', $1)`, [JSON.stringify(payload)])
  const bouncer = await startPgBouncer({ postgresPort: crashing.port, poolMode: 'transaction' })
  cleanUp(() => bouncer.stop())
  const proxy = await startProxy({ targetPort: bouncer.port })
  cleanUp(() => proxy.close())
  const pool = new pg.Pool({ connectionString: proxy.url(bouncer.url('postgres')), max: 4 })
  cleanUp(() => pool.end())
  const lockstep = new Lockstep(pool)
  cleanUp(() => lockstep.close())
  await lockstep.migrate()
  const run = dispatching(lockstep, { shards: 1, retainMs: false })
  cleanUp(() => run.stop())
  const payloads = (): unknown[] => run.events.map(({ payload }) => payload)
  const writer = await session()
  await enqueue(writer, 'first')
  await expect.poll(payloads).toEqual(['first'])

  const held = signal()
  const connections = new Set<ProxyConnection>()
  const release = (): void => {
    proxy.onClientData(undefined)
    for (const connection of connections) connection.release()
  }
  cleanUp(release)
  proxy.onClientData((chunk, connection) => {
    if (connections.size === 0 && !chunk.includes('outbox_flush()')) return 'forward'
    // Other connections as well: a commit on one of them flushes the event.
    connections.add(connection)
    held.give()
    return 'hold'
  })
  await writer.query('SET synchronous_commit = off')
  await writer.query(`ALTER SYSTEM SET synchronous_standby_names = 'away'`)
  await writer.query('SELECT pg_reload_conf()')
  await expect.poll(async () => (await pool.query(STANDBYS)).rows).toEqual([{ names: 'away' }])
  await enqueue(writer, 'lost')
  await held.given
  await writer.query('ALTER SYSTEM RESET synchronous_standby_names')
  await crashing.crash()
  await crashing.start()
  const after = await session()
  expect((await after.query('SELECT payload FROM lockstep.outbox_events')).rows).toEqual([{ payload: 'first' }])
  release()
  await enqueue(after, 'kept')
  await expect.poll(payloads).toContain('kept')
  expect(payloads()).not.toContain('lost')
})
