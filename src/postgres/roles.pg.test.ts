import pg from 'pg'
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { InvalidOptionError } from '../errors.ts'
import { key } from '../locks/index.ts'
import { Lockstep } from '../lockstep.ts'
import type { DoctorOptions } from './doctor.ts'
import type { Finding } from './doctorFinding.ts'
import { KNOWN_VERSION } from './migrations.ts'
import { type GrantOptions, grantsFor, ROLE_NAMES, ROLES } from './roles.ts'

const database = await testDatabase()
const owner = new pg.Pool({ connectionString: database.url, max: 2 })
afterAll(() => owner.end())

// Roles belong to the server, not to the database: a name of this file's own.
const role = `app_${database.name}`
const url = new URL(database.url)
url.username = role
let app: pg.Pool

beforeEach(async () => {
  await owner.query(`CREATE ROLE ${role} LOGIN NOSUPERUSER`)
  app = new pg.Pool({ connectionString: url.href, max: 3 })
})
afterEach(async () => {
  await app.end()
  await owner.query(`DROP OWNED BY ${role}; DROP ROLE ${role}`)
})

const lockstepOf = (pool: pg.Pool): Lockstep => new Lockstep(pool)

test('lets a role with the grants of an application lock, hold leases and begin a server epoch', async () => {
  await lockstepOf(owner).grant({ to: role, as: 'application' })
  const lockstep = new Lockstep(app)
  const before = await owner.query<{ value: string }>('SELECT value::text FROM lockstep.incarnation')
  // As after a crash.
  await owner.query('TRUNCATE lockstep.incarnation')
  for (const isolation of ['read committed', 'serializable'] as const) {
    expect(await lockstep.transaction({ lock: key`Transfer:${1}`, isolation }, async () => 'works')).toBe('works')
  }
  const after = await owner.query<{ value: string }>('SELECT value::text FROM lockstep.incarnation')
  expect(after.rows).toHaveLength(1)
  expect(after.rows).not.toEqual(before.rows)
  const lease = await lockstep.leases.acquire(key`Instance:${1}`, { ttlMs: 30_000 })
  expect(await lease.transaction({}, async () => 'works')).toBe('works')
  expect(await lockstep.leases.list()).toMatchObject([{ key: 'Instance:1' }])
  await lease.release()
  expect(await lockstep.leases.history(key`Instance:${1}`)).toMatchObject([{ ending: 'released' }])
  await lockstep.rollout.set('Transfer:', 'on', { reason: 'a test' })
  expect(await lockstep.rollout.list()).toMatchObject([{ prefix: 'Transfer:' }])
  await owner.query('TRUNCATE lockstep.rollout')
  const table = new Lockstep(app, { strategy: 'table' })
  expect(await table.transaction({ lock: key`Transfer:${1}` }, async () => 'works')).toBe('works')
  expect(await table.transaction({ lockShared: key`Transfer:${1}` }, async () => 'works')).toBe('works')
  expect((await lockstep.locks.list()).locks).toEqual([])
  // migrate() at every start-up finds that there is nothing to do, without the right to create anything.
  expect(await lockstep.migrate()).toEqual({ from: KNOWN_VERSION, to: KNOWN_VERSION, applied: [] })
  const failed = (await lockstep.doctor({ as: 'application' })).filter(({ level }) => level === 'fail')
  expect(failed).toEqual([])
  await Promise.all([lockstep.close(), table.close()])
})

test('lets no role change the server epoch', async () => {
  for (const name of ROLE_NAMES) {
    await lockstepOf(owner).grant({ to: role, as: name })
    for (const attempt of [
      'UPDATE lockstep.epoch SET timeline_offset = 0',
      'DELETE FROM lockstep.incarnation',
      'INSERT INTO lockstep.incarnation SELECT * FROM lockstep.incarnation',
      `SELECT setval('lockstep.fences', 1)`,
      'UPDATE lockstep.leases SET expires_at = now()',
      'SELECT token FROM lockstep.leases',
    ])
      await expect(app.query(attempt), `${name}: ${attempt}`).rejects.toMatchObject({ code: '42501' })
  }
})

test('grants nothing to every role', async () => {
  const { rows } = await owner.query(
    `SELECT p.oid::regprocedure::text AS name FROM pg_proc p
      WHERE p.pronamespace = 'lockstep'::regnamespace AND has_function_privilege($1, p.oid, 'EXECUTE')`,
    [role],
  )
  expect(rows).toEqual([])
})

test('sets a search_path for every function with the owner’s rights', async () => {
  const { rows } = await owner.query(
    `SELECT p.oid::regprocedure::text AS name FROM pg_proc p
      WHERE p.pronamespace = 'lockstep'::regnamespace AND p.prosecdef
        AND NOT coalesce(p.proconfig, '{}') @> ARRAY['search_path=pg_catalog, pg_temp']`,
  )
  expect(rows).toEqual([])
})

test('grants only existing functions that run with the owner’s rights or touch no table', async () => {
  const tables = (
    await owner.query<{ name: string }>(
      `SELECT relname AS name FROM pg_class WHERE relnamespace = 'lockstep'::regnamespace AND relkind IN ('r', 'p', 'S')`,
    )
  ).rows.map(({ name }) => name)
  await lockstepOf(owner).grant({ to: role, as: ROLE_NAMES })
  const { rows } = await owner.query<{ name: string; source: string }>(
    `SELECT p.proname AS name, p.prosrc AS source FROM pg_proc p
      WHERE p.pronamespace = 'lockstep'::regnamespace AND NOT p.prosecdef AND has_function_privilege($1, p.oid, 'EXECUTE')`,
    [role],
  )
  for (const { name, source } of rows)
    for (const table of tables) expect(source, name).not.toContain(`"lockstep".${table} `)
})

describe('the doctor, run as the role', () => {
  const grantsOf = async (options: DoctorOptions = {}): Promise<Finding[]> => {
    const lockstep = new Lockstep(app)
    const findings = await lockstep.doctor(options)
    await lockstep.close()
    return findings.filter(({ name }) => name === 'grants')
  }

  test.each(ROLE_NAMES)('passes for %s with its grants', async (name) => {
    await lockstepOf(owner).grant({ to: role, as: name })
    for (const options of [{}, { as: name }])
      expect(await grantsOf(options)).toEqual([
        {
          name: 'grants',
          level: 'ok',
          found: `"${role}" as ${name} has exactly the grants of the documentation`,
          advice: '',
        },
      ])
  })

  test.each(ROLE_NAMES)('names every missing grant of %s, and what to run', async (name) => {
    for (const missing of ROLES[name].functions) {
      await lockstepOf(owner).grant({ to: role, as: name })
      await owner.query(`REVOKE EXECUTE ON FUNCTION lockstep.${missing} FROM ${role}`)
      const found = (await grantsOf({ as: name, trial: false })).filter(({ level }) => level === 'fail')
      expect(found).toMatchObject([{ found: `"${role}" as ${name} lacks EXECUTE on ${missing}` }])
      expect(found[0]?.advice).toContain(`GRANT EXECUTE ON FUNCTION "lockstep".${missing} TO "${role}";`)
    }
  })

  test('gives sufficient statements as advice', async () => {
    const [finding] = await grantsOf({ as: 'producer' })
    expect(finding).toMatchObject({ level: 'fail', found: `"${role}" as producer lacks USAGE on the schema` })
    await owner.query(/run: (.*;) Or:/.exec(finding?.advice ?? '')?.[1] ?? '')
    expect(await grantsOf({ as: 'producer' })).toMatchObject([{ level: 'ok' }])
  })

  test('fails for a role that can change a table, or create in the schema', async () => {
    await lockstepOf(owner).grant({ to: role, as: 'producer' })
    await owner.query(`GRANT UPDATE ON lockstep.epoch TO ${role}; GRANT CREATE ON SCHEMA lockstep TO ${role}`)
    const [finding] = await grantsOf()
    expect(finding).toMatchObject({ level: 'fail' })
    expect(finding?.found).toContain('UPDATE on epoch, CREATE on the schema')
    await lockstepOf(owner).grant({ to: role, as: 'producer' })
    expect(await grantsOf()).toMatchObject([{ level: 'ok' }])
  })

  test('checks several roles at once', async () => {
    await lockstepOf(owner).grant({ to: role, as: ['application', 'producer', 'consumer'] })
    expect(await grantsOf()).toMatchObject([
      { level: 'ok', found: expect.stringContaining('producer and application and consumer') },
    ])
    expect(await grantsOf({ as: 'producer' })).toMatchObject([{ level: 'warn' }])
  })
})

test.each([
  { to: '', as: 'producer' },
  { to: 'a', as: 'prodcer' },
  { to: 'a', as: [] },
  { to: 'a', as: 'producer', all: true },
])('rejects %j before anything is sent', (options) => {
  expect(() => grantsFor('lockstep', options as unknown as GrantOptions)).toThrow(InvalidOptionError)
})

test('reports a missing CREATE privilege in migrate()', async () => {
  await expect(new Lockstep(app, { schema: 'not_mine' }).migrate()).rejects.toMatchObject({
    code: 'LOCKSTEP_MIGRATION_FAILED',
    cause: { code: '42501' },
  })
})
