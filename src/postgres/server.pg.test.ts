import { chmod, cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type PostgresServer, startPostgres } from '../../tools/server/postgres.ts'
import { StandbyRefusedError } from '../errors.ts'
import { lockId } from '../locks/index.ts'
import { Lockstep } from '../lockstep.ts'
import { diagnose } from './doctor.ts'
import type { Finding } from './doctorFinding.ts'
import { driverFor } from './driver.ts'
import type { ServerEpoch } from './serverEpoch.ts'
import { checkReadiness } from './readiness.ts'

/** What only a server of one's own can show: its restarts and crashes, its copies, its limits. */

let place: string
let server: PostgresServer

beforeAll(async () => {
  place = await mkdtemp(join(tmpdir(), 'lockstep-lives-'))
  // The server runs as another user where we are root.
  await chmod(place, 0o755)
  server = await startPostgres({
    dataDir: join(place, 'primary'),
    settings: { max_connections: '60', max_locks_per_transaction: '10', max_prepared_transactions: '2' },
  })
  await withPool(async (pool) => new Lockstep(pool).migrate())
})
afterAll(async () => {
  await server.stop('immediate')
  await rm(place, { recursive: true, force: true })
})

async function withPool<T>(work: (pool: pg.Pool) => Promise<T>, url = server.url(), max = 5): Promise<T> {
  const pool = new pg.Pool({ connectionString: url, max })
  // pool.end() does not wait for its connections' last words, and this server stops at any time.
  pool.on('error', () => undefined)
  try {
    return await work(pool)
  } finally {
    await pool.end()
  }
}

async function incarnation(database?: string): Promise<ServerEpoch> {
  return withPool(async (pool) => (await checkReadiness(driverFor(pool), 'lockstep')).serverEpoch, server.url(database))
}

async function findings(url: string, oldAfterMs?: number): Promise<Map<string, Finding>> {
  const probe = { key: 'Doctor:probe', id: lockId('lockstep', 'lock', 'Doctor:probe') }
  const found = await withPool((pool) => diagnose(driverFor(pool), 'lockstep', probe, oldAfterMs), url)
  return new Map(found.map((each) => [each.name, each]))
}

describe('the server epoch', () => {
  test('survives a clean restart', async () => {
    const before = await incarnation()
    await server.restart('fast')
    expect(await incarnation()).toEqual(before)
  })

  test('ends with a crash, and keeps the generation of fences', async () => {
    const before = await incarnation()
    await server.crash()
    await server.start()
    const after = await incarnation()
    expect(after.value).not.toBe(before.value)
    const { system, database, timeline, epoch } = before
    expect(after).toMatchObject({ system, database, timeline, epoch })
  })

  test('is one for twenty callers after a crash', async () => {
    await server.crash()
    await server.start()
    const found = await withPool(
      async (pool) => {
        // Connected before, so that they ask at the same moment.
        const clients = await Promise.all(Array.from({ length: 20 }, () => pool.connect()))
        for (const client of clients) client.release()
        return Promise.all(clients.map(() => checkReadiness(driverFor(pool), 'lockstep')))
      },
      server.url(),
      20,
    )
    expect(new Set(found.map((each) => each.serverEpoch.value)).size).toBe(1)
  })

  test('begins by itself in a transaction after a crash', async () => {
    const pool = new pg.Pool({ connectionString: server.url(), max: 3 })
    const sql = postgres(server.url(), { max: 3, onnotice() {} })
    try {
      const both = [new Lockstep(pool), new Lockstep(sql)]
      for (const lockstep of both) await lockstep.transaction({ lock: 'Transfer:1' }, async () => undefined)
      const before = await incarnation()
      await server.crash()
      await server.start()
      await Promise.all(both.map((lockstep) => lockstep.transaction({ lock: 'Transfer:1' }, async () => undefined)))
      expect((await incarnation()).value).not.toBe(before.value)
    } finally {
      await pool.end()
      await sql.end({ timeout: 1 })
    }
  })

  test('is another one in a copy of the database', async () => {
    const original = await incarnation()
    await withPool((pool) => pool.query('CREATE DATABASE copied TEMPLATE postgres'), server.url('template1'))
    const copy = await incarnation('copied')
    expect(copy.value).not.toBe(original.value)
    expect(copy.database).not.toBe(original.database)
    expect(copy.system).toBe(original.system)
    expect(copy.epoch).toBeGreaterThan(original.epoch)
    expect(await incarnation()).toEqual(original)
  })

  test('is on disk before it is used, whatever synchronous_commit says', async () => {
    const pool = new pg.Pool({ connectionString: server.url(), options: '-c synchronous_commit=off', max: 1 })
    const before = await incarnation()
    try {
      await withPool(
        // As in a restored dump.
        (admin) => admin.query('UPDATE lockstep.epoch SET system = 1; TRUNCATE lockstep.incarnation'),
        server.url(),
      )
      const { serverEpoch: begun } = await checkReadiness(driverFor(pool), 'lockstep')
      expect(begun.epoch).toBeGreaterThan(before.epoch)
      await server.crash()
      await server.start()
      // A change that was not on disk would be made once more.
      expect((await incarnation()).epoch).toBe(begun.epoch)
      const { rows } = await withPool(
        (admin) => admin.query<{ system: string }>('SELECT system::text FROM lockstep.epoch'),
        server.url(),
      )
      expect(rows[0]?.system).toBe(before.system)
    } finally {
      await pool.end()
    }
  })
})

describe('the doctor', () => {
  test('reports a lock table that is more than half full', async () => {
    await withPool(async (pool) => {
      const client = await pool.connect()
      await client.query('BEGIN')
      await client.query('SELECT pg_advisory_xact_lock(n) FROM generate_series(1, 400) n')
      expect((await findings(server.url())).get('lock table')).toMatchObject({ level: 'warn' })
      await client.query('ROLLBACK')
      client.release()
      expect((await findings(server.url())).get('lock table')).toMatchObject({ level: 'ok' })
    })
  })

  test('reports a forgotten prepared transaction', async () => {
    await withPool(async (pool) => {
      const client = await pool.connect()
      await client.query('BEGIN')
      await client.query('SELECT pg_current_xact_id()')
      await client.query(`PREPARE TRANSACTION 'forgotten'`)
      const { found, level } = (await findings(server.url(), 0)).get('old snapshots') as Finding
      expect({ found, level }).toMatchObject({ level: 'warn', found: expect.stringContaining('forgotten') as string })
      expect((await findings(server.url())).get('old snapshots')).toMatchObject({ level: 'ok' })
      await client.query(`ROLLBACK PREPARED 'forgotten'`)
      client.release()
    })
  })
})

describe('a standby', () => {
  let standby: PostgresServer

  beforeAll(async () => {
    await server.stop('fast')
    const dataDir = join(place, 'standby')
    await cp(server.dataDir, dataDir, { recursive: true, preserveTimestamps: true })
    await writeFile(join(dataDir, 'standby.signal'), '')
    await server.start()
    standby = await startPostgres({
      dataDir,
      settings: { max_connections: '60', max_locks_per_transaction: '10', max_prepared_transactions: '2' },
    })
  })
  afterAll(() => standby.stop('immediate'))

  test.each(['pg', 'postgres.js'])('is rejected by transaction() and migrate(), through %s', async (name) => {
    const pool = name === 'pg' ? new pg.Pool({ connectionString: standby.url() }) : postgres(standby.url())
    try {
      const lockstep = new Lockstep(pool)
      await expect(lockstep.transaction({ lock: 'Transfer:1' }, async () => 1)).rejects.toBeInstanceOf(
        StandbyRefusedError,
      )
      await expect(lockstep.transaction({}, async () => 1)).rejects.toBeInstanceOf(StandbyRefusedError)
      await expect(lockstep.migrate()).rejects.toBeInstanceOf(StandbyRefusedError)
      await expect(new Lockstep(pool, { schema: 'missing' }).migrate()).rejects.toBeInstanceOf(StandbyRefusedError)
    } finally {
      await pool.end()
    }
  })

  test('is reported by the doctor', async () => {
    const found = await findings(standby.url())
    expect(found.get('standby')).toMatchObject({ level: 'fail' })
    expect(found.has('schema')).toBe(false)
    expect((await findings(server.url())).get('standby')).toMatchObject({ level: 'ok' })
  })
})
