import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, describe, expect, inject, test, vi } from 'vitest'
import { pgBouncerAvailable, startPgBouncer } from '../../tools/server/pgbouncer.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { SchemaMissingError } from '../errors.ts'
import { lockId } from '../locks/index.ts'
import { Lockstep } from '../lockstep.ts'
import { diagnose } from './doctor.ts'
import type { Finding } from './doctorFinding.ts'
import { driverFor, type Pool } from './driver.ts'

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url, max: 4 })
afterAll(() => pool.end())

async function examine(subject: Pool, schema = 'lockstep', oldAfterMs?: number): Promise<Map<string, Finding>> {
  const key = 'Doctor:probe'
  const found = await diagnose(driverFor(subject), schema, { key, id: lockId(schema, 'lock', key) }, oldAfterMs)
  for (const { level, advice } of found) expect(advice === '').toBe(level === 'ok')
  return new Map(found.map((each) => [each.name, each]))
}

async function examineWith(config: pg.PoolConfig): Promise<Map<string, Finding>> {
  const configured = new pg.Pool({ connectionString: database.url, ...config })
  try {
    return await examine(configured)
  } finally {
    await configured.end()
  }
}

test('passes a default server, with both drivers', async () => {
  const sql = postgres(database.url, { max: 4, transform: postgres.pascal })
  try {
    const [one, other] = [await examine(pool), await examine(sql)]
    expect([...one.keys()]).toEqual([...other.keys()])
    for (const name of [
      'server version',
      'standby',
      'schema',
      'lock ids',
      'pooler',
      'clock',
      'session locks',
      'durability',
    ]) {
      expect(one.get(name), name).toMatchObject({ level: 'ok' })
      expect(other.get(name), name).toMatchObject({ level: 'ok' })
    }
    expect([...one.values()].filter(({ level }) => level === 'fail')).toEqual([])
  } finally {
    await sql.end()
  }
})

test.each([
  [{ connect_timeout: 0 }, 'fail', 'connect_timeout: 30'],
  [{ connect_timeout: 60 }, 'warn', 'connect_timeout: 30'],
  [{}, 'ok', ''],
])('checks the connect timeout of postgres.js with %o', async (options, level, advice) => {
  const sql = postgres(database.url, { max: 1, ...options })
  try {
    const finding = (await examine(sql)).get('connects')
    expect(finding).toMatchObject({ level, advice: expect.stringContaining(advice) as string })
  } finally {
    await sql.end()
  }
})

test('checks the connect timeout of pg', async () => {
  const plain = new pg.Pool({ connectionString: database.url })
  const hiding = new Proxy(new pg.Pool({ connectionString: database.url }), {
    get: (target, name) => {
      const value: unknown = name === 'Client' ? undefined : Reflect.get(target, name, target)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })
  try {
    expect((await examine(plain)).get('connects')).toMatchObject({ level: 'ok' })
    expect((await examine(hiding)).get('connects')).toMatchObject({
      level: 'fail',
      advice: 'Set `connectionTimeoutMillis: 30000` in the options of the pool.',
    })
  } finally {
    await Promise.all([plain.end(), hiding.end()])
  }
})

test('runs as lockstep.doctor(), and tries the locks', async () => {
  const names = (await new Lockstep(pool).doctor()).map(({ name }) => name)
  expect(names.toSorted()).toEqual([...(await examine(pool)).keys(), 'locks'].toSorted())
})

describe.skipIf(!pgBouncerAvailable())('poolers', () => {
  test('passes in transaction mode', async () => {
    const found = await examineWith({ connectionString: database.pooledUrl, max: 3 })
    expect(found.get('pooler')).toMatchObject({ level: 'warn', found: 'a pooler in transaction mode' })
  })

  test('passes in session mode', async () => {
    const admin = new URL(inject('adminUrl'))
    await using bouncer = await startPgBouncer({
      postgresHost: admin.hostname,
      postgresPort: Number(admin.port || 5432),
      users: { [decodeURIComponent(admin.username)]: decodeURIComponent(admin.password) },
      poolMode: 'session',
    })
    const found = await examineWith({ connectionString: bouncer.url(database.name), max: 3 })
    expect(found.get('pooler')).toMatchObject({
      level: 'warn',
      found: expect.stringContaining('session mode') as string,
    })
  })

  test('reports that one connection cannot find out the mode', async () => {
    const found = await examineWith({ connectionString: database.pooledUrl, max: 1 })
    expect(found.get('pooler')).toMatchObject({
      level: 'warn',
      found: expect.stringContaining('or one too busy') as string,
    })
  })
})

describe('the schema', () => {
  test('is reported if missing', async () => {
    const found = await examine(pool, 'nowhere')
    expect(found.get('schema')).toMatchObject({ level: 'fail', advice: expect.stringContaining('migrate') as string })
    expect(found.has('lock ids')).toBe(false)
  })

  test('is reported if renamed', async () => {
    await new Lockstep(pool, { schema: 'before' }).migrate()
    await pool.query('ALTER SCHEMA before RENAME TO after')
    expect((await examine(pool, 'after')).get('schema')).toMatchObject({
      level: 'fail',
      found: expect.stringContaining('refer') as string,
    })
    await expect(new Lockstep(pool, { schema: 'after' }).transaction({}, async () => 1)).rejects.toBeInstanceOf(
      SchemaMissingError,
    )
    expect(pool.idleCount).toBe(pool.totalCount)
    expect((await pool.query('SELECT 1 AS n')).rows).toEqual([{ n: 1 }])
  })

  test('is reported with a wrong lock_id()', async () => {
    await new Lockstep(pool, { schema: 'wrong' }).migrate()
    await pool.query(`
      CREATE OR REPLACE FUNCTION wrong.lock_id(domain text, key text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT
      AS 'SELECT hashtext(key)::bigint'`)
    const found = await examine(pool, 'wrong')
    expect(found.get('lock ids')).toMatchObject({ level: 'fail' })
    expect(found.get('schema')).toMatchObject({ level: 'warn' })
  })
})

describe('the pool and its sessions', () => {
  test('works with a pool of one', async () => {
    const found = await examineWith({ max: 1 })
    expect(found.get('pool')).toMatchObject({ level: 'warn' })
    expect(found.get('schema')).toMatchObject({ level: 'ok' })
    expect((await examineWith({ max: 2 })).get('pool')).toMatchObject({ level: 'ok' })
  })

  test('reports synchronous_commit off', async () => {
    const found = await examineWith({ options: '-c synchronous_commit=off' })
    expect(found.get('durability')).toMatchObject({ level: 'warn' })
  })

  test('reports a timeout of idle transactions', async () => {
    expect((await examineWith({})).get('idle in transaction')).toMatchObject({ level: 'warn' })
    const found = await examineWith({ options: '-c idle_in_transaction_session_timeout=60s' })
    expect(found.get('idle in transaction')).toMatchObject({ level: 'ok' })
  })

  test('reports keepalives', async () => {
    const long = await examineWith({ options: '-c tcp_keepalives_idle=7200' })
    expect(long.get('keepalive')).toMatchObject({ level: 'warn' })
    const short = await examineWith({ options: '-c tcp_keepalives_idle=30' })
    expect(short.get('keepalive')).toMatchObject({ level: 'ok', found: expect.stringContaining('30 s') as string })
  })
})

test('reports a clock that is ahead or behind', async () => {
  const now = Date.now.bind(Date)
  try {
    for (const [offsetMs, level] of [
      [-5000, 'warn'],
      [5000, 'warn'],
      [0, 'ok'],
    ] as const) {
      vi.spyOn(Date, 'now').mockImplementation(() => now() + offsetMs)
      expect((await examine(pool)).get('clock')).toMatchObject({ level })
    }
  } finally {
    vi.restoreAllMocks()
  }
})

test('reports a transaction that has been open for too long', async () => {
  const client = new pg.Client({ connectionString: database.url, application_name: 'the forgetful one' })
  await client.connect()
  try {
    await client.query('BEGIN')
    expect((await examine(pool, 'lockstep', 0)).get('old snapshots')).toMatchObject({
      level: 'warn',
      found: expect.stringContaining('the forgetful one') as string,
    })
    // Other files' transactions share the server; none is five minutes old.
    expect((await examine(pool)).get('old snapshots')).toMatchObject({ level: 'ok' })
  } finally {
    await client.end()
  }
})

test('reports an idle session with an advisory lock', async () => {
  const client = new pg.Client({ connectionString: database.url, application_name: 'the holder' })
  await client.connect()
  try {
    await client.query('SELECT pg_advisory_lock(1)')
    // The server reports the session as idle a moment after its answer.
    const found = async (): Promise<Finding | undefined> => (await examine(pool)).get('session locks')
    await expect.poll(found).toMatchObject({ level: 'warn', found: expect.stringContaining('the holder') as string })
    await client.query('SELECT pg_advisory_unlock(1)')
    expect(await found()).toMatchObject({ level: 'ok' })
  } finally {
    await client.end()
  }
})

describe('a session of a role without a right on the schema', () => {
  const role = `${database.name}_stranger`
  const stranger = async (): Promise<pg.Client> => {
    const url = new URL(database.url)
    url.username = role
    const client = new pg.Client({ connectionString: url.href, application_name: 'the stranger' })
    await client.connect()
    return client
  }

  beforeAll(() => pool.query(`CREATE ROLE ${role} LOGIN NOSUPERUSER`))
  afterAll(() => pool.query(`DROP ROLE ${role}`))

  const foreign = async (): Promise<Finding | undefined> => (await examine(pool)).get('foreign locks')
  const none = { level: 'ok', found: "no session of another role holds one of Lockstep's lock numbers" }

  test('is reported while it holds a group of the outbox or the lock of migrations, with its role and program', async () => {
    const client = await stranger()
    try {
      expect(await foreign()).toMatchObject(none)
      const { rows } = await pool.query<{ group: string; migrate: string }>(
        `SELECT lockstep.outbox_group_lock(5)::text AS "group", lockstep.lock_id('migrate', 'Migrate:global')::text AS migrate`,
      )
      const [{ group, migrate } = { group: '', migrate: '' }] = rows
      await client.query(`SELECT pg_advisory_lock(${group}), pg_advisory_lock_shared(${migrate})`)
      const found = await foreign()
      expect(found).toMatchObject({ level: 'warn', advice: expect.stringContaining('pg_terminate_backend') as string })
      for (const what of ['group 5 of the outbox', 'the lock of migrations']) {
        expect(found?.found).toMatch(new RegExp(`backend \\d+ \\(the stranger\\) of role "${role}" holds ${what}`))
      }
      await client.query('SELECT pg_advisory_unlock_all()')
      expect(await foreign()).toMatchObject(none)
    } finally {
      await client.end()
    }
  })

  test('is reported with the key that a session of Lockstep waits for', async () => {
    const client = await stranger()
    const lockstep = new Lockstep(pool)
    try {
      await client.query(`SELECT pg_advisory_lock(${lockstep.lockId('Account:1')})`)
      const waiting = lockstep.transaction({ lock: 'Account:1' }, async () => 'ran')
      await expect.poll(foreign).toMatchObject({
        level: 'warn',
        found: expect.stringContaining(`of role "${role}" holds the lock on Account:1`) as string,
      })
      await client.query('SELECT pg_advisory_unlock_all()')
      expect(await waiting).toBe('ran')
      expect(await foreign()).toMatchObject(none)
    } finally {
      await client.end()
      await lockstep.close()
    }
  })

  test('is reported while it waits for a lock number that Lockstep holds', async () => {
    const client = await stranger()
    const lockstep = new Lockstep(pool)
    try {
      await lockstep
        .transaction({ lock: 'Account:2' }, async () => {
          const waiting = client.query(`SELECT pg_advisory_lock(${lockstep.lockId('Account:2')})`)
          await expect.poll(foreign).toMatchObject({
            level: 'warn',
            found: expect.stringContaining(`of role "${role}" waits for `) as string,
          })
          return { waiting }
        })
        .then(({ waiting }) => waiting)
    } finally {
      await client.end()
      await lockstep.close()
    }
  })

  test('is not reported for a number that is not one of Lockstep', async () => {
    const client = await stranger()
    try {
      await client.query('SELECT pg_advisory_lock(4711)')
      expect(await foreign()).toMatchObject(none)
    } finally {
      await client.end()
    }
  })
})

test('releases no connection with an open transaction after an error', async () => {
  const broken = new pg.Pool({ connectionString: database.url, options: '-c statement_timeout=1', max: 1 })
  try {
    await pool.query('BEGIN; LOCK TABLE lockstep.migrations; COMMIT')
    const client = await pool.connect()
    await client.query('BEGIN; LOCK TABLE lockstep.migrations IN ACCESS EXCLUSIVE MODE')
    await expect(examine(broken)).rejects.toMatchObject({ code: '57014' })
    await client.query('ROLLBACK')
    client.release()
    expect(broken.totalCount).toBe(0)
  } finally {
    await broken.end()
  }
})
