import { readFile } from 'node:fs/promises'
import pg from 'pg'
import { afterAll, afterEach, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { dumpFile, dumpOf } from '../../tools/schema/dump.ts'
import { InvalidOptionError } from '../errors.ts'
import { key, lockId } from '../locks/index.ts'
import { Lockstep } from '../lockstep.ts'
import { describeSchema } from './describeSchema.ts'
import { driverFor } from './driver.ts'
import { checkSchemaName, quoteIdentifier, quoteLiteral } from './identifiers.ts'
import { KNOWN_VERSION, migrationsIn, NEEDED_VERSION } from './migrations.ts'

const database = await testDatabase()
const pool = new pg.Pool({ connectionString: database.url, max: 3 })
afterAll(() => pool.end())
const driver = driverFor(pool)

test('matches sql/schema.sql after all migrations; `npm run schema` writes it', async () => {
  expect(await dumpOf(pool, 'lockstep')).toBe(await readFile(dumpFile, 'utf8'))
})

test('states the versions of its migrations', async () => {
  const migrations = migrationsIn()
  expect(KNOWN_VERSION).toBe(migrations.length)
  expect(NEEDED_VERSION).toBeLessThanOrEqual(KNOWN_VERSION)
  for (const { version, compatibleFrom } of migrations) expect(compatibleFrom).toBeLessThanOrEqual(version)
})

// migrate() does not check bodies, because a function calls others that come after it.
test('has function bodies without errors', async () => {
  const { rows } = await pool.query<{ count: number }>(
    `SELECT count(CASE l.lanname WHEN 'sql' THEN fmgr_sql_validator(p.oid)::text ELSE plpgsql_validator(p.oid)::text END)::int AS count
       FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.pronamespace = 'lockstep'::regnamespace`,
  )
  expect(rows[0]?.count).toBeGreaterThan(90)
})

// Before PostgreSQL 18 a plan that cannot do without what is forbidden counts as very expensive, and an expensive plan is compiled first.
test('disables JIT in functions that forbid plans', async () => {
  const { rows } = await pool.query<{ name: string; settings: string[] }>(
    `SELECT proname AS name, proconfig AS settings FROM pg_proc
      WHERE pronamespace = 'lockstep'::regnamespace AND 'enable_seqscan=off' = ANY(proconfig)`,
  )
  expect(rows.length).toBeGreaterThanOrEqual(9)
  expect(rows.filter(({ settings }) => !settings.includes('jit=off'))).toEqual([])
})

describe('the name of the schema', () => {
  const names = [
    'Weird "Schema" \\ ü',
    "it's",
    'order',
    'a.b',
    'public_lockstep',
    '💥 %1 & {x} %s%I',
    '<slot> <writes>',
    '; -- */',
    // Each of these stands in the text of the schema with another meaning.
    'e',
    'x',
    'UTF8',
    'epoch',
    'incarnation',
    'lock_id',
    'lockstep.',
    '"lockstep"',
  ]

  test.each(names)('has no effect on the description and the lock ids: %j', async (schema) => {
    const lockstep = new Lockstep(pool, { schema })
    expect(await lockstep.migrate()).toMatchObject({ from: 0, to: KNOWN_VERSION })
    expect(await dumpOf(pool, schema)).toBe(await readFile(dumpFile, 'utf8'))
    const { rows } = await pool.query<{ id: string }>(
      `SELECT ${quoteIdentifier(schema)}.lock_id('lock', 'Transfer:42')::text AS id`,
    )
    expect(rows[0]?.id).toBe(String(lockstep.lockId('Transfer:42')))
    const answer = await lockstep.transaction({ lock: key`Transfer:${42}`, isolation: 'serializable' }, async (tx) => {
      const result = await tx.query<{ held: string }>(
        `SELECT count(*)::text AS held FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()`,
      )
      return result.rows[0]?.held
    })
    expect(answer).toBe('1')
    await pool.query(`DROP SCHEMA ${quoteIdentifier(schema)} CASCADE`)
  })

  test.each([
    '',
    'pg_lockstep',
    'x'.repeat(64),
    'ü'.repeat(32),
    'nul\0',
    'half \ud800',
    'a$$b',
    'a$b',
    'x$create$||1||$create$',
    7,
    null,
  ])('is rejected before anything is sent: %j', (schema) => {
    expect(() => checkSchemaName(schema)).toThrow(InvalidOptionError)
  })

  test('gives different lock ids for different names', () => {
    expect(new Set(names.map((name) => lockId(name, 'lock', 'Transfer:42'))).size).toBe(names.length)
  })

  test('survives quoting by the server', async () => {
    for (const name of names) {
      const { rows } = await pool.query(`SELECT ${quoteLiteral(name)} AS ${quoteIdentifier(name)}`)
      expect(rows).toEqual([{ [name]: name }])
    }
  })
})

test('describes the schema independently of the search_path and quote_all_identifiers', async () => {
  const options = '-c search_path=lockstep,public -c quote_all_identifiers=on'
  const other = new pg.Pool({ connectionString: database.url, options, max: 1 })
  try {
    expect(await describeSchema(driverFor(other), 'lockstep')).toBe(await describeSchema(driver, 'lockstep'))
  } finally {
    await other.end()
  }
})

test('does not report a limit of events that migrate() has set', async () => {
  const lockstep = new Lockstep(pool, { schema: 'limited' })
  await lockstep.migrate({ maxEventBytes: 2_000_000 })
  expect(await lockstep.doctor()).toContainEqual(expect.objectContaining({ name: 'schema', level: 'ok' }))
  await pool.query('DROP SCHEMA limited CASCADE')
})

describe('reports a manual change', () => {
  afterEach(() => pool.query('DROP SCHEMA changed CASCADE'))

  test.each([
    ['a column', 'ALTER TABLE changed.epoch ADD COLUMN extra int'],
    ['a type', 'ALTER TABLE changed.epoch ALTER COLUMN timeline_offset TYPE numeric'],
    ['a default', 'ALTER TABLE changed.epoch ALTER COLUMN timeline_offset SET DEFAULT 7'],
    ['NOT NULL', 'ALTER TABLE changed.epoch ALTER COLUMN timeline_offset DROP NOT NULL'],
    ['a constraint', 'ALTER TABLE changed.epoch ADD CHECK (timeline_offset < 100)'],
    ['an index', 'CREATE INDEX ON changed.epoch (timeline_offset)'],
    ['a logged incarnation', 'ALTER TABLE changed.incarnation SET LOGGED'],
    ['a table', 'CREATE TABLE changed.extra ()'],
    ['a view', 'CREATE VIEW changed.extra AS SELECT 1 AS n'],
    ['a sequence', 'CREATE SEQUENCE changed.extra'],
    [
      'a trigger',
      'CREATE TRIGGER t BEFORE UPDATE ON changed.epoch FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()',
    ],
    [
      'a function’s body',
      `CREATE OR REPLACE FUNCTION changed.lock_id(domain text, key text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS 'SELECT 1::bigint'`,
    ],
    ['a function’s property', 'ALTER FUNCTION changed.lock_id(text, text) VOLATILE'],
    ['a function’s rights', 'ALTER FUNCTION changed.ensure_incarnation() SECURITY INVOKER'],
    ['a function’s setting', 'ALTER FUNCTION changed.ensure_incarnation() SET work_mem = 1024'],
  ])('%s', async (_, change) => {
    const lockstep = new Lockstep(pool, { schema: 'changed' })
    await lockstep.migrate()
    const before = await describeSchema(driver, 'changed')
    await pool.query(change)
    expect(await describeSchema(driver, 'changed')).not.toBe(before)
    expect(await lockstep.doctor()).toContainEqual(expect.objectContaining({ name: 'schema', level: 'warn' }))
  })
})
