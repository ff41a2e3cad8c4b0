import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { failureOf } from '../../tools/server/testing/workbench.ts'
import { FlushUnconfirmedError, Lockstep } from '../index.ts'
import { driverFor, withConnection } from '../postgres/index.ts'
import { flush } from './flushToDisk.ts'

/** A server whose synchronous standby is away: a commit with synchronous_commit = on waits, until somebody cancels it. */

const SOON = { interval: 10, timeout: 15_000 }
const WAITING = `SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%outbox_flush%'`

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

test.each(['pg', 'postgres'])('a cancelled wait for the standby is no flush, %s', async (name) => {
  const names = 'SHOW synchronous_standby_names'
  await expect.poll(async () => (await admin.query(names)).rows, SOON).toEqual([{ synchronous_standby_names: 'away' }])
  const sql = postgres(server.url(), { max: 2, onnotice: () => undefined })
  try {
    const driver = driverFor(name === 'pg' ? admin : sql)
    const flushing = failureOf(withConnection(driver, (connection) => flush(connection, 'lockstep')))
    let waiting: { pid: number }[] = []
    await expect.poll(async () => (waiting = (await admin.query<{ pid: number }>(WAITING)).rows).length, SOON).toBe(1)
    await admin.query('SELECT pg_cancel_backend($1)', [waiting[0]?.pid])
    expect(await flushing).toBeInstanceOf(FlushUnconfirmedError)
  } finally {
    await sql.end({ timeout: 1 })
  }
})
