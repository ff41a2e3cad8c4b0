import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { callCommand, type Ran } from '../../tools/server/testing/commandLine.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { InvalidOptionError, Lockstep } from '../index.ts'

const database = await testDatabase()
const owner = new pg.Pool({ connectionString: database.url, max: 2 })
afterAll(() => owner.end())

// Roles belong to the server, not to the database: a name of this file's own, and one that has to be quoted.
const role = `Shop "1" ${database.name}`.slice(0, 60)
const quoted = `"${role.replaceAll('"', '""')}"`
const url = new URL(database.url)
url.username = encodeURIComponent(role)

const command = (args: readonly string[], on?: string): Promise<Ran> => callCommand(args, { url: on })

beforeAll(() => owner.query(`CREATE ROLE ${quoted} LOGIN NOSUPERUSER`))
afterAll(() => owner.query(`DROP OWNED BY ${quoted}; DROP ROLE ${quoted}`))

test('prints statements that work as printed, without a database', async () => {
  const { code, stdout } = await command(['grants', '--to', role, '--as', 'producer,consumer'])
  expect(code).toBe(0)
  expect(stdout).toMatch(/^BEGIN;\nDO [^;]*;[^]*REVOKE ALL ON ALL TABLES/)
  await owner.query(stdout)
  expect((await command(['doctor', '--as', 'producer,consumer'], url.href)).code).toBe(0)
})

test('applies exactly what was asked for, and revokes the rest', async () => {
  await owner.query(
    `GRANT ALL ON ALL TABLES IN SCHEMA lockstep TO ${quoted}; GRANT UPDATE (timeline_offset) ON lockstep.epoch TO ${quoted}`,
  )
  const applied = await command(['grants', '--to', role, '--as', 'observer', '--apply', '--json'], database.url)
  expect(JSON.parse(applied.stdout)).toMatchObject({ ok: true, command: 'grants', as: ['observer'], applied: true })
  expect((await command(['doctor', '--as', 'observer'], url.href)).code).toBe(0)
})

test('makes the doctor fail for a role without its grants', async () => {
  await command(['grants', '--to', role, '--as', 'consumer', '--apply'], database.url)
  const { code, stdout } = await command(['doctor', '--as', 'producer'], url.href)
  expect(code).toBe(1)
  expect(stdout.replaceAll(/\s+/g, ' ')).toContain('GRANT EXECUTE ON FUNCTION "lockstep".enqueue,')
})

test.each([
  [['--as', 'producer'], '--to is missing.'],
  [['--to', 'shop'], '--as is missing.'],
  [['--to', 'shop', '--as', 'prodcer'], 'There is no role "prodcer".'],
  [['--to', 'shop', '--as', 'producer,'], 'There is no role "".'],
])('rejects %j', async (args, message) => {
  expect(await command(['grants', ...args])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining(message) as string,
  })
})

describe('a role that owns something in the schema', () => {
  const schema = `own'd "1"`
  const quotedSchema = `"${schema.replaceAll('"', '""')}"`
  const holder = `own $do$ ' \\ "1" ${database.name}`.slice(0, 60)
  const quotedHolder = `"${holder.replaceAll('"', '""')}"`
  beforeAll(async () => {
    await owner.query(`CREATE ROLE ${quotedHolder} LOGIN NOSUPERUSER`)
    await new Lockstep(owner, { schema }).migrate()
  })
  afterAll(() =>
    owner.query(`DROP SCHEMA ${quotedSchema} CASCADE; DROP OWNED BY ${quotedHolder}; DROP ROLE ${quotedHolder}`),
  )
  const run = async (as: string): Promise<unknown> => {
    const { stdout } = await command(['grants', '--to', holder, '--as', as, '--schema', schema])
    try {
      return await owner.query(stdout)
    } finally {
      await owner.query('ROLLBACK')
    }
  }

  test.each([
    ['the schema', `ALTER SCHEMA ${quotedSchema} OWNER TO`],
    ['a table', `ALTER TABLE ${quotedSchema}.epoch OWNER TO`],
    ['a function', `ALTER FUNCTION ${quotedSchema}.schema_version() OWNER TO`],
  ])('is rejected and keeps its rights: %s', async (_, alter) => {
    await run('producer')
    await owner.query(`${alter} ${quotedHolder}`)
    await expect(run('producer')).rejects.toMatchObject({
      code: '0LP01',
      message: expect.stringContaining('owns the schema'),
    })
    const applied = await command(
      ['grants', '--to', holder, '--as', 'producer', '--schema', schema, '--apply'],
      database.url,
    )
    expect(applied.code).not.toBe(0)
    expect(applied.stderr).toContain('owns the schema')
    await expect(new Lockstep(owner, { schema }).grant({ to: holder, as: 'producer' })).rejects.toBeInstanceOf(
      InvalidOptionError,
    )
    await owner.query(`${alter} CURRENT_USER`)
  })
})

test('rejects a grant to PUBLIC', async () => {
  const { code, stdout, stderr } = await command(['grants', '--to', 'public', '--as', 'producer'])
  expect([code, stdout]).toEqual([2, ''])
  expect(stderr).toContain('every role')
  await expect(new Lockstep(owner).grant({ to: 'public', as: 'producer' })).rejects.toBeInstanceOf(InvalidOptionError)
})

test('rejects a schema name with a dollar', async () => {
  const { code, stderr } = await command(['grants', '--to', 'shop', '--as', 'producer', '--schema', 'a$b'])
  expect(code).not.toBe(0)
  expect(stderr).toContain('cannot be used')
})
