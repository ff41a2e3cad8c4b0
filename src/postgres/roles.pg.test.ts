import pg from 'pg'
import { afterAll, afterEach, beforeEach, expect, test } from 'vitest'
import { leakGuard, testDatabase } from '../../tools/server/testDatabase.ts'
import { key } from '../locks/index.ts'
import { Lockstep } from '../lockstep.ts'
import { KNOWN_VERSION } from './migrations.ts'

const database = await testDatabase()
leakGuard(database)
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

/** What docs/operating says that an application's role needs. */
const grants = {
  schema: `GRANT USAGE ON SCHEMA lockstep TO ${role}`,
  migrations: `GRANT SELECT ON lockstep.migrations TO ${role}`,
  incarnation: `GRANT SELECT, INSERT, DELETE ON lockstep.incarnation TO ${role}`,
  epoch: `GRANT SELECT, UPDATE ON lockstep.epoch TO ${role}`,
}

async function grant(names: readonly (keyof typeof grants)[]): Promise<void> {
  for (const name of names) await owner.query(grants[name])
}

const all = Object.keys(grants) as (keyof typeof grants)[]

test('with these grants an application’s role does everything, also beginning a new life of the server', async () => {
  await grant(all)
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
  // migrate() at every start-up finds that there is nothing to do, without the right to create anything.
  expect(await lockstep.migrate()).toEqual({ from: KNOWN_VERSION, to: KNOWN_VERSION, applied: [] })
  const failed = (await lockstep.doctor()).filter(({ level }) => level === 'fail')
  expect(failed).toEqual([])
})

test.each(all)('without the grant on %s it is told which right is missing', async (missing) => {
  await grant(all.filter((name) => name !== missing))
  await owner.query('TRUNCATE lockstep.incarnation')
  const lockstep = new Lockstep(app)
  await expect(lockstep.transaction({ lock: key`Transfer:${1}` }, async () => 'works')).rejects.toMatchObject({
    code: '42501',
  })
})

test('migrate() without the right to create says what is missing, and nothing is there', async () => {
  await expect(new Lockstep(app, { schema: 'not_mine' }).migrate()).rejects.toMatchObject({
    code: 'LOCKSTEP_MIGRATION_FAILED',
    cause: { code: '42501' },
  })
})

test('who was allowed to dispatch before functions for it were added still is', async () => {
  const lockstep = new Lockstep(owner, { schema: 'older' })
  await lockstep.migrate({ to: 11 })
  await owner.query(`GRANT USAGE ON SCHEMA older TO ${role}; GRANT EXECUTE ON FUNCTION older.outbox_fetch TO ${role}`)
  await lockstep.migrate()
  for (const name of ['outbox_read', 'outbox_move']) {
    const { rows } = await owner.query(
      `SELECT has_function_privilege($1, p.oid, 'EXECUTE') AS may, has_function_privilege('public', p.oid, 'EXECUTE') AS everybody
         FROM pg_proc p WHERE p.pronamespace = 'older'::regnamespace AND p.proname = $2`,
      [role, name],
    )
    expect(rows).toEqual([{ may: true, everybody: false }])
  }
  await owner.query('DROP SCHEMA older CASCADE')
})
