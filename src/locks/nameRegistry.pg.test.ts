import { spawnSync } from 'node:child_process'
import { createRequire } from 'node:module'
import { fileURLToPath, pathToFileURL } from 'node:url'
import pg from 'pg'
import { afterEach, describe, expect, test } from 'vitest'
import { DRIVERS, failureOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { driverFor, grantsFor, SilenceWatch } from '../postgres/index.ts'
import { key } from './key.ts'
import { lockId } from './lockId.ts'
import { recordNames, trimNames } from './lockList.sql.ts'
import { NameRegistry } from './nameRegistry.ts'
import { Lockstep } from '../lockstep.ts'

const bench = await testBench()
afterEach(() => bench.admin.query('TRUNCATE lockstep.lock_names'))

async function names(): Promise<string[]> {
  const { rows } = await bench.admin.query<{ key: string }>('SELECT key FROM lockstep.lock_names ORDER BY key')
  return rows.map((row) => row.key)
}

let others = 0
/** Another process locks a key, and its name is written: what was noted before has had the time for it as well. */
async function anotherIsWritten(): Promise<void> {
  const other = key`Another:${++others}`
  await bench.open('pg').lockstep.transaction({ lock: other }, async () => undefined)
  await expect.poll(names).toContain(other)
  await bench.admin.query('DELETE FROM lockstep.lock_names WHERE key = $1', [other])
}

describe.each(DRIVERS)('%s', (driver) => {
  test('writes a name under the id that PostgreSQL locks', async () => {
    const { lockstep } = bench.open(driver)
    const nasty = ['Transfer:1', `Quote:'"\\`, 'Emoji:👩‍👩‍👧‍👦', 'Control:\u0001\n', 'Dollar:$1$$'] as const
    await lockstep.transaction({ lock: nasty }, async () => undefined)
    await expect.poll(names).toHaveLength(nasty.length)
    const { rows } = await bench.admin.query<{ id: string; key: string; same: boolean }>(
      `SELECT id::text, key, id = lockstep.lock_id('lock', key) AS same FROM lockstep.lock_names`,
    )
    expect(new Set(rows.map((row) => row.key))).toEqual(new Set(nasty))
    expect(rows.every((row) => row.same)).toBe(true)
    expect(rows.map((row) => row.id).toSorted()).toEqual(nasty.map((each) => String(lockstep.lockId(each))).toSorted())
  })

  test('writes names outside of the caller’s transaction', async () => {
    const { lockstep } = bench.open(driver)
    let xid = ''
    const failing = lockstep.transaction({ lock: 'Transfer:rolled-back' }, async (tx) => {
      const { rows } = await tx.query<{ xid: string }>('SELECT pg_current_xact_id()::xid::text AS xid')
      xid = rows[0]?.xid ?? ''
      await tx.query(`INSERT INTO notes VALUES ('undone')`)
      // It is written while this transaction is open, and seen by others before it ends.
      await expect.poll(names).toEqual(['Transfer:rolled-back'])
      throw new Error('changed my mind')
    })
    expect(await failureOf(failing)).toMatchObject({ message: 'changed my mind' })
    expect(await bench.notes()).toEqual([])
    expect(await names()).toEqual(['Transfer:rolled-back'])
    const { rows } = await bench.admin.query<{ writer: string }>('SELECT xmin::text AS writer FROM lockstep.lock_names')
    expect(rows[0]?.writer).not.toBe(xid)
  })

  test('keeps a read-only transaction read-only, and notes keys of join()', async () => {
    const { lockstep, begin } = bench.open(driver)
    await lockstep.transaction({}, async () => undefined)
    await begin('READ ONLY', async (client) => {
      await lockstep.join(client, { lock: 'Report:1' })
      await expect.poll(names).toEqual(['Report:1'])
    })
  })

  test('opens another connection when the only one holds the lock', async () => {
    const { lockstep } = bench.open(driver, { max: 2 })
    await lockstep.transaction({ lock: 'Long:job' }, () => expect.poll(names).toEqual(['Long:job']))
  })

  test('waits until the pool has a connection to spare', async () => {
    const { lockstep } = bench.open(driver, { max: 1 })
    const over = signal()
    const busy = lockstep.transaction({ lock: 'Only:connection' }, () => over.given)
    // A caller waits for the only connection: the caller comes first.
    const next = lockstep.transaction({ lock: 'Next:one' }, async () => names())
    await anotherIsWritten()
    expect(await names()).toEqual([])
    over.give()
    await busy
    expect(await next).toEqual([])
    await expect.poll(names).toEqual(['Next:one', 'Only:connection'])
  })

  test('writes nothing with names: false', async () => {
    const silent = bench.open(driver, { names: false })
    await silent.lockstep.transaction({ lock: 'Patient:jane-doe' }, async () => {
      const { locks } = await silent.lockstep.locks.list()
      // This process knows its own key; no other process does.
      expect(locks).toMatchObject([{ key: 'Patient:jane-doe' }])
      const [seen] = (await bench.open('pg').lockstep.locks.list()).locks
      expect(seen).toMatchObject({ id: silent.lockstep.lockId('Patient:jane-doe'), key: undefined })
      await anotherIsWritten()
    })
    expect(await names()).toEqual([])
  })

  test('leaves nothing behind after close()', async () => {
    for (let round = 0; round < 20; round++) {
      const { lockstep, pool, end } = bench.open(driver)
      const keys = Array.from({ length: 200 }, (_, n) => key`Closing:${round}:${n}`)
      await lockstep.transaction({ lock: keys }, async () => undefined)
      await new Promise((resolve) => setTimeout(resolve, 40 + round))
      await lockstep.close()
      const before = await names()
      // Nothing is in flight: every connection is back in the pool, and can be closed.
      if ('idleCount' in pool) expect(pool.idleCount).toBe(pool.totalCount)
      await end()
      expect(await names()).toEqual(before)
    }
  })
})

describe('a role with few rights', () => {
  const role = `nameless_${bench.name}`
  const url = new URL(bench.url)
  url.username = role
  // What a producer has lets it lock, and says nothing of names.
  const needed = [grantsFor('lockstep', { to: role, as: 'producer' }).join('; ')]

  test.each([
    ['none on names', []],
    ['only that to read them', [`GRANT EXECUTE ON FUNCTION lockstep.lock_names_of TO ${role}`]],
    [
      'all, but read-only by default',
      [
        grantsFor('lockstep', { to: role, as: 'application' }).join('; '),
        `ALTER ROLE ${role} SET default_transaction_read_only = on`,
      ],
    ],
  ])('does not disturb transactions and connections: %s', async (_name, grants) => {
    await bench.admin.query(`CREATE ROLE ${role} LOGIN NOSUPERUSER`)
    const pool = new pg.Pool({ connectionString: url.href, max: 1 })
    try {
      for (const grant of [...needed, ...grants]) await bench.admin.query(grant)
      await new Lockstep(bench.admin).transaction({}, async () => undefined)
      const lockstep = new Lockstep(pool)
      const pids = new Set<number>()
      for (let round = 0; round < 4; round++) {
        await lockstep.transaction({ lock: key`Role:${round}` }, async (tx) => {
          const { rows } = await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
          pids.add(rows[0]?.pid ?? 0)
        })
        await anotherIsWritten()
      }
      expect(pids.size).toBe(1)
      expect(await names()).toEqual([])
      await lockstep.close()
    } finally {
      await pool.end()
      await bench.admin.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
    }
  })
})

describe('the table', () => {
  const schema = '"lockstep"'

  test('does not rewrite a name that was just seen', async () => {
    const write = (): Promise<unknown> =>
      bench.admin.query(recordNames(schema, [[lockId('lockstep', 'lock', 'Hot:key'), 'Hot:key']]))
    const version = async (): Promise<unknown> =>
      (await bench.admin.query('SELECT xmin::text FROM lockstep.lock_names')).rows
    await write()
    const first = await version()
    await write()
    expect(await version()).toEqual(first)
    await bench.admin.query(`UPDATE lockstep.lock_names SET seen_at = now() - interval '5 minutes'`)
    await write()
    const { rows } = await bench.admin.query(
      `SELECT seen_at > now() - interval '1 minute' AS fresh FROM lockstep.lock_names`,
    )
    expect(rows).toEqual([{ fresh: true }])
  })

  test('keeps the newest names, and skips rows that are locked', async () => {
    await bench.admin.query(`
      INSERT INTO lockstep.lock_names
      SELECT n, 'Key:' || n, now() - n * interval '1 second' FROM generate_series(1, 100) n`)
    const writer = await bench.admin.connect()
    await writer.query('BEGIN; UPDATE lockstep.lock_names SET seen_at = now() WHERE id = 100')
    await bench.admin.query(trimNames(schema, 40, 1000))
    await writer.query('COMMIT')
    writer.release()
    const { rows } = await bench.admin.query<{ id: string }>('SELECT id FROM lockstep.lock_names ORDER BY id')
    expect(rows.map(({ id }) => Number(id))).toEqual([...Array.from({ length: 40 }, (_, n) => n + 1), 100])
    // A few at a time.
    await bench.admin.query(trimNames(schema, 10, 5))
    expect(await names()).toHaveLength(36)
  })

  test('is trimmed by the registry itself', async () => {
    const { pool } = bench.open('pg')
    const limits = { keep: 30, trimEvery: 1, maxBatch: 50, everyMs: 10, soonMs: 1 }
    const registry = new NameRegistry(driverFor(pool), schema, new SilenceWatch(1000), () => true, limits)
    await (pool as pg.Pool).query('SELECT 1')
    for (let n = 0; n < 200; n++) registry.note(lockId('lockstep', 'lock', `Key:${n}`), `Key:${n}`)
    await expect.poll(async () => (await names()).includes('Key:199')).toBe(true)
    await registry.close()
    expect(await names()).toHaveLength(30)
  })

  test('does not deadlock two processes that write names in opposite orders', async () => {
    const keys = Array.from({ length: 300 }, (_, n) => `Key:${n}`)
    const clients = [bench.open('pg'), bench.open('pg')]
    const limits = { everyMs: 5, soonMs: 1, maxBatch: 100 }
    const deadlocks = async (): Promise<unknown> =>
      (await bench.admin.query('SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()')).rows
    const before = await deadlocks()
    for (let round = 0; round < 10; round++) {
      await bench.admin.query(`UPDATE lockstep.lock_names SET seen_at = now() - interval '1 hour'`)
      const registries = clients.map(({ pool }) => {
        return new NameRegistry(driverFor(pool), schema, new SilenceWatch(1000), () => true, limits)
      })
      for (const { pool } of clients) await (pool as pg.Pool).query('SELECT 1')
      for (const each of keys) registries[0]?.note(lockId('lockstep', 'lock', each), each)
      for (const each of keys.toReversed()) registries[1]?.note(lockId('lockstep', 'lock', each), each)
      const stale = `SELECT count(*)::int AS n FROM lockstep.lock_names WHERE seen_at > now() - interval '30 minutes'`
      await expect.poll(async () => (await bench.admin.query<{ n: number }>(stale)).rows[0]?.n).toBe(300)
      for (const registry of registries) await registry.close()
    }
    expect(await deadlocks()).toEqual(before)
  })

  test('does not delay transactions or close() while the table is locked', async () => {
    const { lockstep } = bench.open('pg')
    const owner = await bench.admin.connect()
    await owner.query('BEGIN; LOCK TABLE lockstep.lock_names')
    await lockstep.transaction({ lock: 'Transfer:1' }, async () => undefined)
    await bench.lockWaits(1)
    await lockstep.transaction({ lock: 'Transfer:2' }, async () => undefined)
    await lockstep.close()
    await owner.query('ROLLBACK')
    owner.release()
  })
})

test('does not keep a process alive', () => {
  const require = createRequire(import.meta.url)
  const loader = pathToFileURL(require.resolve('tsx')).href
  const program = `
    import pg from 'pg'
    import { Lockstep } from ${JSON.stringify(fileURLToPath(new URL('../index.ts', import.meta.url)))}
    const pool = new pg.Pool({ connectionString: process.env.URL, allowExitOnIdle: true })
    await new Lockstep(pool).transaction({ lock: 'Short:life' }, async () => undefined)`
  const { stderr, status } = spawnSync(
    process.execPath,
    ['--import', loader, '--input-type=module', '--eval', program],
    {
      encoding: 'utf8',
      timeout: 120_000,
      env: { ...process.env, URL: bench.url },
      cwd: fileURLToPath(new URL('../..', import.meta.url)),
    },
  )
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
})
