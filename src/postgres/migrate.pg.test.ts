import { spawn } from 'node:child_process'
import { once } from 'node:events'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import {
  InvalidOptionError,
  MigrationFailedError,
  SchemaMissingError,
  SchemaTooNewError,
  SchemaTooOldError,
} from '../errors.ts'
import { key, lockId } from '../locks/index.ts'
import { Lockstep } from '../lockstep.ts'
import type { EventMap } from '../outbox/index.ts'
import { on } from '../observe/index.ts'
import { driverFor } from './driver.ts'
import { migrate, type MigrateOptions, type MigrateResult } from './migrate.ts'
import { functionsIn, KNOWN_VERSION, migrationsIn } from './migrations.ts'
import { type SqlFile, sqlFiles } from './sqlFiles.ts'

const database = await testDatabase()
const ours = sqlFiles()
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
  /** A process of its own that migrates on request. */
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

  // Deno runs the text of --eval as a script, and the processes are modules.
  const DENO = 'deno' in process.versions
  test.skipIf(DENO)('applies each migration once for ten migrators in four processes', async () => {
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
      expect(applied).toEqual(migrationsIn(ours).map(({ version }) => version))
      expect(await migrationRows(schema)).toHaveLength(KNOWN_VERSION)
    } finally {
      await Promise.all([...pools.map((each) => each.end()), ...sqls.map((each) => each.end())])
    }
  })
})

test('does nothing a second time, and reports every step once', async () => {
  const schema = freshName()
  const heard: unknown[] = []
  const stop = on('migration.applied', (message) => heard.push(message))
  try {
    const lockstep = new Lockstep(pool, { schema })
    const steps = migrationsIn(ours).map(({ version, name }) => ({ version, name }))
    expect(await lockstep.migrate()).toEqual({ from: 0, to: KNOWN_VERSION, applied: steps })
    expect(await lockstep.migrate()).toEqual({ from: KNOWN_VERSION, to: KNOWN_VERSION, applied: [] })
    expect(heard).toEqual(steps.map((step) => ({ schema, ...step })))
  } finally {
    stop()
  }
})

test('keeps data in an upgrade, and refuses to run before', async () => {
  const schema = freshName()
  const lockstep = new Lockstep(pool, { schema })
  expect(await lockstep.migrate({ to: 1 })).toMatchObject({ from: 0, to: 1, applied: [{ version: 1 }] })
  const before = await migrationRows(schema)
  await expect(lockstep.transaction({ lock: 'Transfer:1' }, async () => undefined)).rejects.toBeInstanceOf(
    SchemaTooOldError,
  )
  expect(await lockstep.doctor()).toContainEqual(expect.objectContaining({ name: 'schema', level: 'fail' }))
  expect(await lockstep.migrate()).toMatchObject({ from: 1, to: KNOWN_VERSION })
  expect((await migrationRows(schema)).slice(0, 1)).toEqual(before)
  expect(await lockstep.transaction({ lock: 'Transfer:1' }, async () => 'works')).toBe('works')
  // Backwards there is no way: what is there stays.
  expect(await lockstep.migrate({ to: 1 })).toEqual({ from: KNOWN_VERSION, to: KNOWN_VERSION, applied: [] })
})

test('explains how to create a missing schema', async () => {
  const lockstep = new Lockstep(pool, { schema: freshName() })
  await expect(lockstep.transaction({ lock: 'Transfer:1' }, async () => undefined)).rejects.toBeInstanceOf(
    SchemaMissingError,
  )
  await lockstep.migrate()
  expect(await lockstep.transaction({ lock: 'Transfer:1' }, async () => 'works')).toBe('works')
})

test.each([0, -1, 1.5, KNOWN_VERSION + 1, Number.NaN])('rejects to: %d', async (to) => {
  const schema = freshName()
  await expect(new Lockstep(pool, { schema }).migrate({ to })).rejects.toBeInstanceOf(InvalidOptionError)
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

  test('runs on if the newer schema is compatible', async () => {
    const lockstep = await migratedBeyond(KNOWN_VERSION)
    const version = KNOWN_VERSION + 1
    expect(await lockstep.migrate()).toEqual({ from: version, to: version, applied: [] })
    expect(await lockstep.transaction({ lock: 'Transfer:1' }, async () => 'works')).toBe('works')
  })

  test('refuses to migrate and to run if it is not', async () => {
    const lockstep = await migratedBeyond(KNOWN_VERSION + 1)
    await expect(lockstep.migrate()).rejects.toBeInstanceOf(SchemaTooNewError)
    await expect(lockstep.transaction({ lock: 'Transfer:1' }, async () => undefined)).rejects.toBeInstanceOf(
      SchemaTooNewError,
    )
    expect(await lockstep.doctor()).toContainEqual(expect.objectContaining({ name: 'schema', level: 'fail' }))
  })
})

describe('other migrations than ours', () => {
  const next = String(KNOWN_VERSION + 1).padStart(4, '0')
  const broken = `-- compatible-from: 1\nCREATE TABLE :"schema".half (n int);\nINSERT INTO :"schema".half VALUES (1);\nSELECT 1/0;\n`

  /** Our files with others beside them, or in their place. */
  function filesWith(tables: Record<string, string>, functions: Record<string, string> = {}): readonly SqlFile[] {
    const texts = new Map(ours.map(({ name, text }) => [name, text]))
    for (const [name, text] of Object.entries(tables)) texts.set(`tables/${name}`, text)
    for (const [name, text] of Object.entries(functions)) texts.set(`functions/${name}`, text)
    return [...texts].map(([name, text]) => ({ name, text }))
  }

  function migrateFrom(
    schema: string,
    files: readonly SqlFile[],
    options: MigrateOptions = {},
  ): Promise<MigrateResult> {
    return migrate(driverFor(pool), schema, lockId(schema, 'migrate', 'Migrate:global'), options, files)
  }

  test('roll back all of them if one fails', async () => {
    const schema = freshName()
    const files = filesWith({ [`${next}_broken.sql`]: broken })
    const failure = await migrateFrom(schema, files).catch((error: unknown) => error)
    expect(failure).toBeInstanceOf(MigrationFailedError)
    expect(failure).toMatchObject({ cause: { code: '22012' } })
    expect(await exists(schema)).toBe(false)
  })

  test('leave the schema unchanged if one fails in an upgrade', async () => {
    const schema = freshName()
    const lockstep = new Lockstep(pool, { schema })
    await lockstep.migrate()
    const files = filesWith({ [`${next}_broken.sql`]: broken })
    await expect(migrateFrom(schema, files)).rejects.toBeInstanceOf(MigrationFailedError)
    expect(await migrationRows(schema)).toHaveLength(KNOWN_VERSION)
    expect((await pool.query(`SELECT to_regclass('${schema}.half') AS half`)).rows).toEqual([{ half: null }])
    expect(await lockstep.transaction({ lock: 'Transfer:1' }, async () => 'works')).toBe('works')
  })

  test('wait for a table that others use without stopping them, and continue where they were', async () => {
    const schema = freshName()
    const lockstep = new Lockstep(pool, { schema })
    await lockstep.migrate()
    const after = String(KNOWN_VERSION + 2).padStart(4, '0')
    const files = filesWith({
      [`${next}_new.sql`]: '-- compatible-from: 1\nCREATE TABLE :"schema".added (n int);\n',
      [`${after}_held.sql`]: '-- compatible-from: 1\nALTER TABLE :"schema".leases ADD COLUMN note text;\n',
    })
    const holder = await pool.connect()
    const applied: number[] = []
    const stop = on('migration.applied', (message) => message.schema === schema && applied.push(message.version))
    try {
      await holder.query('BEGIN')
      await holder.query(`SELECT FROM ${schema}.leases LIMIT 1`)
      const migrating = migrateFrom(schema, files)
      const queued = async (): Promise<number | null> =>
        (await pool.query(`SELECT FROM pg_locks WHERE relation = '${schema}.leases'::regclass AND NOT granted`))
          .rowCount
      // It queues, steps back and queues again. What queues behind it continues, although the holder does not.
      for (const waits of [1, 0, 1, 0]) await expect.poll(queued, { interval: 5, timeout: 60_000 }).toBe(waits)
      await lockstep.lease('Job:other', {}, async () => undefined)
      expect(applied).toEqual([KNOWN_VERSION + 1])
      // Its functions are not there yet, so that no newer library starts.
      expect((await pool.query(`SELECT version FROM ${schema}.schema_version()`)).rows).toEqual([
        { version: KNOWN_VERSION },
      ])
      await holder.query('COMMIT')
      expect(await migrating).toMatchObject({
        from: KNOWN_VERSION,
        to: KNOWN_VERSION + 2,
        applied: [{ version: KNOWN_VERSION + 1 }, { version: KNOWN_VERSION + 2 }],
      })
    } finally {
      stop()
      holder.release(true)
    }
  })

  test('keep what was applied before one fails in an upgrade, and continue there', async () => {
    const schema = freshName()
    await new Lockstep(pool, { schema }).migrate()
    const after = String(KNOWN_VERSION + 2).padStart(4, '0')
    const added = {
      [`${next}_new.sql`]: '-- compatible-from: 1\nALTER TABLE :"schema".leases ADD COLUMN note text;\n',
    }
    const failure = await migrateFrom(schema, filesWith({ ...added, [`${after}_broken.sql`]: broken })).catch(
      (error: unknown) => error,
    )
    expect(failure).toBeInstanceOf(MigrationFailedError)
    expect(failure).toMatchObject({ advice: expect.stringContaining(`up to ${KNOWN_VERSION + 1} were applied`) })
    const repaired = { ...added, [`${after}_broken.sql`]: broken.replace('SELECT 1/0;', '') }
    expect(await migrateFrom(schema, filesWith(repaired))).toMatchObject({
      from: KNOWN_VERSION + 1,
      applied: [{ version: KNOWN_VERSION + 2 }],
    })
    expect((await migrationRows(schema)).map(({ version }) => version)).toEqual(
      Array.from({ length: KNOWN_VERSION + 2 }, (_, place) => place + 1),
    )
  })

  test('apply all in one transaction where one excludes processes of the version before', async () => {
    const schema = freshName()
    await new Lockstep(pool, { schema }).migrate()
    const after = String(KNOWN_VERSION + 2).padStart(4, '0')
    const files = filesWith({
      [`${next}_note.sql`]: `-- compatible-from: ${KNOWN_VERSION + 1}\nALTER TABLE :"schema".leases ADD COLUMN note text;\n`,
      [`${after}_broken.sql`]: broken,
    })
    await expect(migrateFrom(schema, files)).rejects.toBeInstanceOf(MigrationFailedError)
    expect(await migrationRows(schema)).toHaveLength(KNOWN_VERSION)
  })

  test('upgrade a schema with data', async () => {
    const schema = freshName()
    await new Lockstep(pool, { schema }).migrate()
    await pool.query(`UPDATE ${schema}.epoch SET timeline_offset = 41`)
    const files = filesWith({
      [`${next}_note.sql`]: `-- compatible-from: 1\nALTER TABLE :"schema".epoch ADD COLUMN note text NOT NULL DEFAULT 'new';\n`,
    })
    expect(await migrateFrom(schema, files)).toMatchObject({ from: KNOWN_VERSION, to: KNOWN_VERSION + 1 })
    expect((await pool.query(`SELECT timeline_offset::int, note FROM ${schema}.epoch`)).rows).toEqual([
      { timeline_offset: 41, note: 'new' },
    ])
  })

  test('rejects a gap in the numbers and a missing compatible-from before anything is sent', () => {
    expect(() => migrationsIn(filesWith({ '0099_gap.sql': '-- compatible-from: 1' }))).toThrow('0099_gap')
    expect(() => migrationsIn(filesWith({ [`${next}_mute.sql`]: 'SELECT 1' }))).toThrow('compatible-from')
  })

  describe('functions', () => {
    const other = 'LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT 7::bigint $$;'
    const changed = `CREATE FUNCTION :"schema".lock_id(domain text, key text) RETURNS bigint ${other}\n`
    const added = `CREATE FUNCTION :"schema".added() RETURNS bigint SECURITY DEFINER ${other}\n`
    const nextTables = { [`${next}_functions.sql`]: '-- compatible-from: 1\n-- Functions alone.\n' }

    /** A row version of each function: it changes when the function is replaced. */
    async function versions(schema: string): Promise<Map<string, string>> {
      const { rows } = await pool.query<{ name: string; version: string }>(
        `SELECT proname AS name, oid || ':' || xmin AS version FROM pg_proc WHERE pronamespace = '${schema}'::regnamespace`,
      )
      return new Map(rows.map(({ name, version }) => [name, version]))
    }

    async function lockIdIn(schema: string): Promise<string> {
      const { rows } = await pool.query<{ id: string }>(`SELECT ${schema}.lock_id('lock', 'A:1') AS id`)
      return String(rows[0]?.id)
    }

    test('replaces a function whose text has changed, and no other', async () => {
      const schema = freshName()
      await new Lockstep(pool, { schema }).migrate()
      const before = await versions(schema)
      await migrateFrom(schema, filesWith(nextTables, { 'lock_id.sql': changed }))
      const after = await versions(schema)
      expect([...after.keys()].toSorted()).toEqual([...before.keys()].toSorted())
      expect([...after].filter(([name, version]) => before.get(name) !== version).map(([name]) => name)).toEqual([
        'lock_id',
      ])
      expect(await lockIdIn(schema)).toBe('7')
    })

    test('keeps the grants of a replaced function, and grants no new one', async () => {
      const schema = freshName()
      const role = `caller_${database.name}`
      await new Lockstep(pool, { schema }).migrate()
      await pool.query(`CREATE ROLE ${role}; GRANT EXECUTE ON FUNCTION ${schema}.lock_id TO ${role}`)
      try {
        await migrateFrom(schema, filesWith(nextTables, { 'lock_id.sql': changed, 'added.sql': added }))
        const { rows } = await pool.query(
          `SELECT proname AS name, has_function_privilege('${role}', oid, 'EXECUTE') AS granted, has_function_privilege('public', oid, 'EXECUTE') AS public
             FROM pg_proc WHERE pronamespace = '${schema}'::regnamespace AND proname IN ('lock_id', 'added') ORDER BY 1`,
        )
        expect(rows).toEqual([
          { name: 'added', granted: false, public: false },
          { name: 'lock_id', granted: true, public: false },
        ])
      } finally {
        await pool.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
      }
    })

    test('does not replace a function that an application has in the schema', async () => {
      const schema = freshName()
      const theirs = `CREATE FUNCTION ${schema}.enqueue(topic text, key text, payload json, headers json) RETURNS bigint`
      await pool.query(`CREATE SCHEMA ${schema}; ${theirs} LANGUAGE sql AS 'SELECT 1::bigint'`)
      await expect(new Lockstep(pool, { schema }).migrate()).rejects.toMatchObject({
        code: 'LOCKSTEP_MIGRATION_FAILED',
        cause: { code: '42723' },
      })
      expect([...(await versions(schema)).keys()]).toEqual(['enqueue'])
    })

    test('does not replace functions of a newer library', async () => {
      const schema = freshName()
      await migrateFrom(schema, filesWith(nextTables, { 'lock_id.sql': changed, 'added.sql': added }))
      const before = await versions(schema)
      expect(await new Lockstep(pool, { schema }).migrate()).toMatchObject({ from: KNOWN_VERSION + 1, applied: [] })
      expect(await versions(schema)).toEqual(before)
    })

    test('creates only the version function below the newest version', async () => {
      const schema = freshName()
      await migrateFrom(schema, ours, { to: KNOWN_VERSION - 1 })
      expect([...(await versions(schema)).keys()]).toEqual(['schema_version'])
      await migrateFrom(schema, ours)
      const before = await versions(schema)
      expect(before.size).toBe(functionsIn(ours).length)
      // A newer library that stops at an older version of the tables leaves the functions of that version.
      await migrateFrom(schema, filesWith(nextTables, { 'lock_id.sql': changed }), { to: KNOWN_VERSION })
      expect(await versions(schema)).toEqual(before)
    })

    test('rolls back if a function cannot be created', async () => {
      const schema = freshName()
      await new Lockstep(pool, { schema }).migrate()
      const before = await versions(schema)
      const files = filesWith(nextTables, {
        'lock_id.sql': changed,
        'wrong.sql': 'CREATE FUNCTION :"schema".wrong() RETURNS missing LANGUAGE sql AS $$ SELECT 1 $$;',
      })
      await expect(migrateFrom(schema, files)).rejects.toBeInstanceOf(MigrationFailedError)
      expect(await versions(schema)).toEqual(before)
      expect(await migrationRows(schema)).toHaveLength(KNOWN_VERSION)
    })

    test('keeps a limit of events over a new text of its function', async () => {
      const schema = freshName()
      await new Lockstep(pool, { schema }).migrate({ maxEventBytes: 12_345 })
      const text = functionsIn(ours).find(({ name }) => name === 'outbox_max_event_bytes')?.text ?? ''
      await migrateFrom(schema, filesWith(nextTables, { 'outbox_max_event_bytes.sql': `-- New.\n${text}` }))
      const { rows } = await pool.query(`SELECT ${schema}.outbox_max_event_bytes()::int AS bytes`)
      expect(rows).toEqual([{ bytes: 12_345 }])
    })

    test('replaces a function once for ten upgrades', async () => {
      const schema = freshName()
      await new Lockstep(pool, { schema }).migrate()
      const files = filesWith(nextTables, { 'lock_id.sql': changed, 'added.sql': added })
      const results = await Promise.all(Array.from({ length: 10 }, () => migrateFrom(schema, files)))
      expect(results.flatMap(({ applied }) => applied)).toHaveLength(1)
      const { rows } = await pool.query(
        `SELECT count(DISTINCT xmin::text)::int AS transactions FROM ${schema}.functions WHERE name IN ('lock_id', 'added')`,
      )
      expect(rows).toEqual([{ transactions: 1 }])
      expect(await lockIdIn(schema)).toBe('7')
    })
  })
})

test('reports a connection that is lost in the middle, and succeeds next time', async () => {
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
    await expect.poll(async () => (await pool.query(waiting)).rowCount).toBe(1)
    await pool.query(`SELECT pg_terminate_backend(pid) FROM (${waiting}) waiting`)
    expect(await migrating).toBeInstanceOf(MigrationFailedError)
    await holder.query('ROLLBACK')
    expect(await lockstep.migrate()).toMatchObject({ from: 0, to: KNOWN_VERSION })
  } finally {
    holder.release()
    await sql.end()
  }
})

test('does not share locks between two schemas', async () => {
  const one = new Lockstep(pool, { schema: freshName() })
  const other = new Lockstep(pool, { schema: freshName() })
  await Promise.all([one.migrate(), other.migrate()])
  expect(one.lockId('Transfer:1')).not.toBe(other.lockId('Transfer:1'))
  const both = await one.transaction({ lock: key`Transfer:${1}` }, () =>
    other.transaction({ lock: key`Transfer:${1}`, waitMs: 0 }, async () => 'both'),
  )
  expect(both).toBe('both')
})
