import { spawn } from 'node:child_process'
import { once } from 'node:events'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, describe, expect, test } from 'vitest'
import { leakGuard, testDatabase } from '../../tools/server/testDatabase.ts'
import { InvalidOption, MigrationFailed, SchemaMissing, SchemaTooNew, SchemaTooOld } from '../errors.ts'
import { key, lockId } from '../locks/index.ts'
import { Lockstep } from '../lockstep.ts'
import type { EventMap } from '../outbox/index.ts'
import { on } from '../observe/index.ts'
import { driverFor } from './driver.ts'
import { migrate, type MigrateResult } from './migrate.ts'
import { KNOWN_VERSION, readMigrations } from './migrations.ts'
import { type SqlFile, sqlFiles } from './sqlFiles.ts'

const database = await testDatabase()
leakGuard(database)
const pool = new pg.Pool({ connectionString: database.url, max: 4 })
afterAll(() => pool.end())

let count = 0
function freshName(): string {
  return `fresh_${++count}`
}

async function migrationRows(schema: string): Promise<{ version: number; name: string; applied_at: Date }[]> {
  const { rows } = await pool.query<{ version: number; name: string; applied_at: Date }>(
    `SELECT version, name, applied_at FROM ${schema}.migrations ORDER BY version`,
  )
  return rows
}

async function exists(schema: string): Promise<boolean> {
  const { rowCount } = await pool.query('SELECT 1 FROM pg_namespace WHERE nspname = $1', [schema])
  return rowCount === 1
}

describe('at once', () => {
  /** A process of its own that migrates when it is told to. */
  async function migratingProcess(schema: string): Promise<{ go(): Promise<MigrateResult> }> {
    const program = `
      import pg from 'pg'
      import { Lockstep } from ${JSON.stringify(new URL('../lockstep.ts', import.meta.url).href)}
      const pool = new pg.Pool({ connectionString: process.env.URL, max: 1 })
      await pool.query('SELECT 1')
      process.stdin.once('data', async () => {
        console.log(JSON.stringify(await new Lockstep(pool, { schema: process.env.SCHEMA }).migrate()))
        await pool.end()
        process.exit()
      })
      console.log('ready')`
    const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', program], {
      env: { ...process.env, URL: database.url, SCHEMA: schema },
      stdio: ['pipe', 'pipe', 'inherit'],
    })
    child.stdout.setEncoding('utf8')
    expect(await once(child.stdout, 'data')).toEqual(['ready\n'])
    return {
      async go() {
        child.stdin.write('go\n')
        const [line] = (await once(child.stdout, 'data')) as [string]
        return JSON.parse(line) as MigrateResult
      },
    }
  }

  test('ten migrators in four processes, both drivers: each migration is applied exactly once', async () => {
    const schema = freshName()
    const processes = await Promise.all([1, 2, 3].map(() => migratingProcess(schema)))
    const pools = [1, 2, 3, 4].map(() => new pg.Pool({ connectionString: database.url, max: 1 }))
    const sqls = [1, 2, 3].map(() => postgres(database.url, { max: 1 }))
    try {
      const results = await Promise.all([
        ...processes.map((each) => each.go()),
        ...[...pools, ...sqls].map((each) => new Lockstep(each, { schema }).migrate()),
      ])
      expect(results).toHaveLength(10)
      expect(results.map(({ to }) => to)).toEqual(Array(10).fill(KNOWN_VERSION))
      const applied = results.flatMap((result) => result.applied.map(({ version }) => version))
      expect(applied).toEqual(readMigrations().map(({ version }) => version))
      expect(await migrationRows(schema)).toHaveLength(KNOWN_VERSION)
    } finally {
      await Promise.all([...pools.map((each) => each.end()), ...sqls.map((each) => each.end())])
    }
  })
})

test('a second time there is nothing to do, and every step is told once', async () => {
  const schema = freshName()
  const heard: unknown[] = []
  const stop = on('migration.applied', (message) => heard.push(message))
  try {
    const lockstep = new Lockstep(pool, { schema })
    const migrations = readMigrations()
    const steps = migrations.map(({ version, name }) => ({ version, name }))
    expect(await lockstep.migrate()).toEqual({ from: 0, to: KNOWN_VERSION, applied: steps })
    expect(await lockstep.migrate()).toEqual({ from: KNOWN_VERSION, to: KNOWN_VERSION, applied: [] })
    expect(heard).toEqual(steps.map((step) => ({ schema, ...step })))
  } finally {
    stop()
  }
})

test('an upgrade in place keeps what is there; until then the library refuses to run', async () => {
  const schema = freshName()
  const lockstep = new Lockstep(pool, { schema })
  expect(await lockstep.migrate({ to: 1 })).toMatchObject({ from: 0, to: 1, applied: [{ version: 1 }] })
  const before = await migrationRows(schema)
  await expect(lockstep.transaction({ lock: 'Transfer:1' }, async () => undefined)).rejects.toBeInstanceOf(SchemaTooOld)
  expect(await lockstep.doctor()).toContainEqual(expect.objectContaining({ name: 'schema', level: 'fail' }))
  expect(await lockstep.migrate()).toMatchObject({ from: 1, to: KNOWN_VERSION })
  expect((await migrationRows(schema)).slice(0, 1)).toEqual(before)
  expect(await lockstep.transaction({ lock: 'Transfer:1' }, async () => 'works')).toBe('works')
  // Backwards there is no way: what is there stays.
  expect(await lockstep.migrate({ to: 1 })).toEqual({ from: KNOWN_VERSION, to: KNOWN_VERSION, applied: [] })
})

test('without a schema the library says how to get one', async () => {
  const lockstep = new Lockstep(pool, { schema: freshName() })
  await expect(lockstep.transaction({ lock: 'Transfer:1' }, async () => undefined)).rejects.toBeInstanceOf(
    SchemaMissing,
  )
  await lockstep.migrate()
  expect(await lockstep.transaction({ lock: 'Transfer:1' }, async () => 'works')).toBe('works')
})

test.each([0, -1, 1.5, KNOWN_VERSION + 1, Number.NaN])('to: %d is refused', async (to) => {
  const schema = freshName()
  await expect(new Lockstep(pool, { schema }).migrate({ to })).rejects.toBeInstanceOf(InvalidOption)
  expect(await exists(schema)).toBe(false)
})

describe('a newer library was here', () => {
  async function migratedBeyond(compatibleFrom: number): Promise<Lockstep<EventMap, pg.Pool>> {
    const schema = freshName()
    const lockstep = new Lockstep(pool, { schema })
    await lockstep.migrate()
    await pool.query(`INSERT INTO ${schema}.migrations VALUES ($1, 'from_the_future', $2)`, [
      KNOWN_VERSION + 1,
      compatibleFrom,
    ])
    return lockstep
  }

  test('in a way that this one can live with: it runs on, while the deploy rolls', async () => {
    const lockstep = await migratedBeyond(KNOWN_VERSION)
    const version = KNOWN_VERSION + 1
    expect(await lockstep.migrate()).toEqual({ from: version, to: version, applied: [] })
    expect(await lockstep.transaction({ lock: 'Transfer:1' }, async () => 'works')).toBe('works')
  })

  test('in a way that this one cannot: it refuses to migrate and to run', async () => {
    const lockstep = await migratedBeyond(KNOWN_VERSION + 1)
    await expect(lockstep.migrate()).rejects.toBeInstanceOf(SchemaTooNew)
    await expect(lockstep.transaction({ lock: 'Transfer:1' }, async () => undefined)).rejects.toBeInstanceOf(
      SchemaTooNew,
    )
    expect(await lockstep.doctor()).toContainEqual(expect.objectContaining({ name: 'schema', level: 'fail' }))
  })
})

describe('other migrations than ours', () => {
  function filesWith(name: string, text: string): readonly SqlFile[] {
    return [...sqlFiles(), { name, text }]
  }

  const next = String(KNOWN_VERSION + 1).padStart(4, '0')
  const broken = `-- compatible-from: 1\nCREATE TABLE :"schema".half (n int);\nINSERT INTO :"schema".half VALUES (1);\nSELECT 1/0;\n`

  function migrateFrom(schema: string, files: readonly SqlFile[]): Promise<MigrateResult> {
    return migrate(driverFor(pool), schema, lockId(schema, 'migrate', 'Migrate:global'), {}, files)
  }

  test('one that fails leaves nothing behind, not even those before it', async () => {
    const schema = freshName()
    const failure = await migrateFrom(schema, filesWith(`${next}_broken.sql`, broken)).catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(MigrationFailed)
    expect(failure).toMatchObject({ cause: { code: '22012' } })
    expect(await exists(schema)).toBe(false)
  })

  test('one that fails in an upgrade leaves the schema as it was', async () => {
    const schema = freshName()
    const lockstep = new Lockstep(pool, { schema })
    await lockstep.migrate()
    await expect(migrateFrom(schema, filesWith(`${next}_broken.sql`, broken))).rejects.toBeInstanceOf(MigrationFailed)
    expect(await migrationRows(schema)).toHaveLength(KNOWN_VERSION)
    expect((await pool.query(`SELECT to_regclass('${schema}.half') AS half`)).rows).toEqual([{ half: null }])
    expect(await lockstep.transaction({ lock: 'Transfer:1' }, async () => 'works')).toBe('works')
  })

  test('the next version upgrades a schema with data in it', async () => {
    const schema = freshName()
    await new Lockstep(pool, { schema }).migrate()
    await pool.query(`UPDATE ${schema}.epoch SET timeline_offset = 41`)
    const files = filesWith(
      `${next}_note.sql`,
      `-- compatible-from: 1\nALTER TABLE :"schema".epoch ADD COLUMN note text NOT NULL DEFAULT 'new';\n`,
    )
    expect(await migrateFrom(schema, files)).toMatchObject({ from: KNOWN_VERSION, to: KNOWN_VERSION + 1 })
    expect((await pool.query(`SELECT timeline_offset::int, note FROM ${schema}.epoch`)).rows).toEqual([
      { timeline_offset: 41, note: 'new' },
    ])
  })

  test('a gap in the numbers and a missing compatible-from are found before anything is sent', () => {
    expect(() => readMigrations(filesWith('0099_gap.sql', '-- compatible-from: 1'))).toThrow('0099_gap')
    expect(() => readMigrations(filesWith(`${next}_mute.sql`, 'SELECT 1'))).toThrow('compatible-from')
  })
})

test('a connection that is lost in the middle is told, and the next try does it', async () => {
  const schema = freshName()
  const holder = await pool.connect()
  await holder.query('BEGIN')
  await holder.query('SELECT pg_advisory_xact_lock($1)', [String(lockId(schema, 'migrate', 'Migrate:global'))])
  const sql = postgres(database.url, { max: 1 })
  try {
    const lockstep = new Lockstep(sql, { schema })
    const migrating = lockstep.migrate().catch((error: unknown) => error)
    const waiting = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
    await expect.poll(async () => (await pool.query(waiting)).rowCount, { interval: 5 }).toBe(1)
    await pool.query(`SELECT pg_terminate_backend(pid) FROM (${waiting}) waiting`)
    expect(await migrating).toBeInstanceOf(MigrationFailed)
    await holder.query('ROLLBACK')
    expect(await lockstep.migrate()).toMatchObject({ from: 0, to: KNOWN_VERSION })
  } finally {
    holder.release()
    await sql.end()
  }
})

test('two schemas side by side do not share their locks', async () => {
  const [one, other] = [freshName(), freshName()].map((schema) => new Lockstep(pool, { schema })) as [
    Lockstep,
    Lockstep,
  ]
  await Promise.all([one.migrate(), other.migrate()])
  expect(one.lockId('Transfer:1')).not.toBe(other.lockId('Transfer:1'))
  const both = await one.transaction({ lock: key`Transfer:${1}` }, () =>
    other.transaction({ lock: key`Transfer:${1}`, waitMs: 0 }, async () => 'both'),
  )
  expect(both).toBe('both')
})
