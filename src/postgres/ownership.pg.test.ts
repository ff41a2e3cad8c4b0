import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { SchemaNotOwnedError } from '../errors.ts'
import { key } from '../locks/index.ts'
import { Lockstep } from '../lockstep.ts'
import { KNOWN_VERSION } from './migrations.ts'
import { functionsOf, ROLE_NAMES } from './roles.ts'

/** A role migrates a schema that another role created. The code in it must not have run. */

const database = await testDatabase()
const admin = new pg.Pool({ connectionString: database.url, max: 2 })
afterAll(() => admin.end())

// Roles belong to the server, not to the database: names of this file's own.
const mallory = `mallory_${database.name}`
const deployer = `deployer_${database.name}`
const poolOf = (role: string): pg.Pool => {
  const url = new URL(database.url)
  url.username = role
  return new pg.Pool({ connectionString: url.href, max: 2 })
}
let malloryPool: pg.Pool
let deployerPool: pg.Pool

beforeAll(async () => {
  for (const role of [mallory, deployer])
    await admin.query(`CREATE ROLE ${role} LOGIN NOSUPERUSER; GRANT CREATE ON DATABASE ${database.name} TO ${role}`)
  malloryPool = poolOf(mallory)
  deployerPool = poolOf(deployer)
})
afterAll(async () => {
  await malloryPool.end()
  await deployerPool.end()
  for (const role of [mallory, deployer]) await admin.query(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`)
})

/** Counts how often planted code ran: a sequence keeps what a rollback undoes. */
beforeEach(async () => {
  await admin.query(`CREATE SEQUENCE public.ran; GRANT ALL ON SEQUENCE public.ran TO PUBLIC`)
})
afterEach(async () => {
  await admin.query(`DROP SCHEMA IF EXISTS planted CASCADE; DROP SEQUENCE public.ran`)
})
const ran = async (): Promise<boolean> =>
  (await admin.query<{ is_called: boolean }>('SELECT is_called FROM public.ran')).rows[0]?.is_called ?? false

const EVIL = `CREATE FUNCTION planted.evil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''public.ran''); RETURN NEW; END'`
const TRIGGER = `${EVIL}; CREATE TABLE planted.migrations (version int PRIMARY KEY, name text, compatible_from int, applied_at timestamptz);
  CREATE TRIGGER t BEFORE INSERT ON planted.migrations FOR EACH ROW EXECUTE FUNCTION planted.evil()`

describe.each([
  ['a superuser', () => admin],
  ['a role that owns something else', () => deployerPool],
])('%s', (_, pool) => {
  const migrate = (): Promise<unknown> => new Lockstep(pool(), { schema: 'planted' }).migrate()

  test('refuses a schema of another role, and runs no trigger of it', async () => {
    await malloryPool.query(
      `CREATE SCHEMA planted; ${TRIGGER}; GRANT ALL ON SCHEMA planted TO PUBLIC; GRANT ALL ON planted.migrations TO PUBLIC`,
    )
    await expect(migrate()).rejects.toMatchObject({
      code: 'LOCKSTEP_SCHEMA_NOT_OWNED',
      message: expect.stringContaining(`belongs to the role "${mallory}"`),
    })
    expect(await ran()).toBe(false)
  })

  test('refuses an empty schema of another role', async () => {
    await malloryPool.query('CREATE SCHEMA planted; GRANT ALL ON SCHEMA planted TO PUBLIC')
    await expect(migrate()).rejects.toBeInstanceOf(SchemaNotOwnedError)
  })

  test('refuses its own schema with a table of another role, and names both', async () => {
    await pool().query(`CREATE SCHEMA planted; GRANT ALL ON SCHEMA planted TO ${mallory}`)
    await malloryPool.query(TRIGGER)
    await expect(migrate()).rejects.toMatchObject({
      code: 'LOCKSTEP_SCHEMA_NOT_OWNED',
      message: expect.stringContaining(`table migrations of ${mallory}`),
    })
    expect(await ran()).toBe(false)
  })

  test('refuses a trigger of another role on a table of its own', async () => {
    await pool().query(`CREATE SCHEMA planted; GRANT ALL ON SCHEMA planted TO ${mallory}`)
    await malloryPool.query(EVIL)
    await pool()
      .query(`CREATE TABLE planted.migrations (version int PRIMARY KEY, name text, compatible_from int, applied_at timestamptz);
      GRANT TRIGGER ON planted.migrations TO ${mallory}`)
    await malloryPool.query(
      'CREATE TRIGGER t BEFORE INSERT ON planted.migrations FOR EACH ROW EXECUTE FUNCTION planted.evil()',
    )
    await expect(migrate()).rejects.toBeInstanceOf(SchemaNotOwnedError)
    expect(await ran()).toBe(false)
  })

  test('calls no function of another role with its own rights', async () => {
    await malloryPool.query(`CREATE SCHEMA planted; GRANT ALL ON SCHEMA planted TO PUBLIC;
      CREATE FUNCTION planted.schema_version(OUT version int, OUT compatible_from int) LANGUAGE sql AS 'SELECT 99 + nextval(''public.ran'')::int, 1'`)
    await expect(migrate()).rejects.toBeInstanceOf(SchemaNotOwnedError)
    expect(await ran()).toBe(false)
  })

  test('is not fooled by functions in a schema of the search_path', async () => {
    await admin.query(`CREATE SCHEMA trap; GRANT ALL ON SCHEMA trap TO PUBLIC`)
    await malloryPool.query(`
      CREATE FUNCTION trap.format(text, text, text) RETURNS text LANGUAGE sql AS 'SELECT nextval(''public.ran'')::text';
      CREATE FUNCTION trap.format(text, text) RETURNS text LANGUAGE sql AS 'SELECT nextval(''public.ran'')::text';
      CREATE FUNCTION trap.replace(varchar, varchar, varchar) RETURNS text LANGUAGE sql AS 'SELECT nextval(''public.ran'')::text'`)
    const client = await pool().connect()
    await client.query(`SET search_path = trap, pg_catalog`)
    client.release()
    try {
      expect(await migrate()).toMatchObject({ to: KNOWN_VERSION })
      expect(await ran()).toBe(false)
    } finally {
      await pool().query('RESET search_path')
      await admin.query('DROP SCHEMA trap CASCADE')
    }
  })

  test('migrates an empty schema of its own', async () => {
    await pool().query('CREATE SCHEMA planted')
    expect(await migrate()).toMatchObject({ to: KNOWN_VERSION })
  })
})

test('migrates as a member of the owner’s role', async () => {
  const group = `group_${database.name}`
  await admin.query(`CREATE ROLE ${group}; GRANT ${group} TO ${deployer}; CREATE SCHEMA planted AUTHORIZATION ${group}`)
  try {
    expect(await new Lockstep(deployerPool, { schema: 'planted' }).migrate()).toMatchObject({ to: KNOWN_VERSION })
  } finally {
    await admin.query(`DROP SCHEMA planted CASCADE; DROP OWNED BY ${group}; DROP ROLE ${group}`)
  }
})

test('does nothing for a role that does not own an up-to-date schema, and rejects it otherwise', async () => {
  const owner = new Lockstep(admin, { schema: 'planted' })
  await owner.migrate({ to: KNOWN_VERSION - 1 })
  await admin.query(
    `GRANT USAGE ON SCHEMA planted TO ${deployer}; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA planted TO ${deployer}`,
  )
  await expect(new Lockstep(deployerPool, { schema: 'planted' }).migrate()).rejects.toBeInstanceOf(SchemaNotOwnedError)
  await owner.migrate()
  await owner.grant({ to: deployer, as: 'observer' })
  const { from, applied } = await new Lockstep(deployerPool, { schema: 'planted' }).migrate()
  expect([from, applied]).toEqual([KNOWN_VERSION, []])
})

/** Each is a schema of mallory's that says that there is nothing to do, and has code of its own behind it. */
const MALLORYS = 'CREATE SCHEMA planted; GRANT ALL ON SCHEMA planted TO PUBLIC'
const VERSION = `CREATE FUNCTION planted.schema_version(OUT version int, OUT compatible_from int) LANGUAGE sql SECURITY DEFINER
  AS 'SELECT ${KNOWN_VERSION}, 1'`
const CALLERS_VERSION = `CREATE FUNCTION planted.schema_version(OUT version int, OUT compatible_from int) LANGUAGE sql
  AS 'SELECT ${KNOWN_VERSION} + 0 * nextval(''public.ran'')::int, 1'`

describe.each([
  [
    'a function behind the version',
    `${VERSION}; CREATE FUNCTION planted.ensure_incarnation(OUT value text, OUT epoch int, OUT timeline text, OUT system bigint, OUT database text)
       LANGUAGE sql AS 'SELECT nextval(''public.ran'')::text, 1, ''1'', 1::bigint, ''1'''`,
  ],
  [
    'a version that is cast',
    `CREATE TYPE planted.v AS ENUM ('${KNOWN_VERSION}');
     CREATE FUNCTION planted.t(planted.v) RETURNS text LANGUAGE sql AS 'SELECT ''${KNOWN_VERSION}'' || left(nextval(''public.ran'')::text, 0)';
     CREATE CAST (planted.v AS text) WITH FUNCTION planted.t(planted.v);
     CREATE FUNCTION planted.schema_version(OUT version planted.v, OUT compatible_from int)
       LANGUAGE sql SECURITY DEFINER AS 'SELECT ''${KNOWN_VERSION}''::planted.v, 1'`,
  ],
  ['a version that runs as its caller', CALLERS_VERSION],
  [
    'a list of locks',
    `CREATE FUNCTION planted.foreign_lock_holders(int, OUT pid int, OUT role text, OUT application text, OUT id bigint, OUT held bool, OUT what text)
       LANGUAGE sql AS 'SELECT 1, '''', '''', nextval(''public.ran''), true, '''''`,
  ],
])('runs nothing of another role’s schema as a superuser: %s', (_, script) => {
  test.each<[string, (lockstep: Lockstep) => Promise<unknown>]>([
    ['migrate()', (lockstep) => lockstep.migrate()],
    ['transaction()', (lockstep) => lockstep.transaction({}, async () => 'ran')],
    ['leases.list()', (lockstep) => lockstep.leases.list()],
    ['locks.list()', (lockstep) => lockstep.locks.list()],
    ['rollout.list()', (lockstep) => lockstep.rollout.list()],
  ])('%s refuses', async (__, call) => {
    await malloryPool.query(`${MALLORYS}; ${script}`)
    const lockstep = new Lockstep(admin, { schema: 'planted' })
    await expect(call(lockstep)).rejects.toBeInstanceOf(SchemaNotOwnedError)
    await lockstep.close()
    expect(await ran()).toBe(false)
  })

  test.each([true, false])('doctor() fails, with trial: %s', async (trial) => {
    await malloryPool.query(`${MALLORYS}; ${script}`)
    const findings = await new Lockstep(admin, { schema: 'planted' }).doctor({ trial })
    expect(findings).toContainEqual({
      name: 'schema',
      level: 'fail',
      found: expect.stringContaining(`the schema belongs to the role "${mallory}"`),
      advice: expect.stringContaining(`Connect as "${mallory}"`),
    })
    expect(await ran()).toBe(false)
  })
})

test('runs no function as a superuser that another role left in the schema', async () => {
  await admin.query(MALLORYS)
  await malloryPool.query(CALLERS_VERSION)
  const lockstep = new Lockstep(admin, { schema: 'planted' })
  await expect(lockstep.transaction({}, async () => 'ran')).rejects.toMatchObject({
    code: 'LOCKSTEP_SCHEMA_NOT_OWNED',
    message: expect.stringContaining(`the function schema_version belongs to the role "${mallory}"`),
  })
  expect(await ran()).toBe(false)
})

test('lets an ordinary role use the schema of another ordinary role', async () => {
  const owner = new Lockstep(malloryPool, { schema: 'planted' })
  await owner.migrate()
  await owner.grant({ to: deployer, as: 'application' })
  const lockstep = new Lockstep(deployerPool, { schema: 'planted' })
  expect(await lockstep.migrate()).toMatchObject({ applied: [] })
  expect(await lockstep.transaction({}, async () => 'works')).toBe('works')
  await lockstep.close()
})

describe('rights of other roles', () => {
  const shop = `shop_${database.name}`
  let shopPool: pg.Pool
  beforeAll(async () => {
    await admin.query(`CREATE ROLE ${shop} LOGIN NOSUPERUSER`)
    shopPool = poolOf(shop)
  })
  afterAll(async () => {
    await shopPool.end()
    await admin.query(`DROP OWNED BY ${shop}; DROP ROLE ${shop}`)
  })
  const given = async (): Promise<string[]> => {
    const { rows } = await admin.query<{ name: string }>(
      `SELECT 'schema' AS name FROM pg_namespace s, aclexplode(s.nspacl) a WHERE s.nspname = 'planted' AND a.grantee <> s.nspowner
       UNION ALL
       SELECT c.relname FROM pg_class c, aclexplode(c.relacl) a WHERE c.relnamespace = 'planted'::regnamespace AND a.grantee <> c.relowner
       UNION ALL
       SELECT p.proname FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        WHERE p.pronamespace = 'planted'::regnamespace AND a.grantee <> p.proowner`,
    )
    return rows.map(({ name }) => name)
  }
  const lockstep = (): Lockstep => new Lockstep(deployerPool, { schema: 'planted' })

  test.each([1, KNOWN_VERSION - 1, KNOWN_VERSION])(
    'are not extended by default privileges, in a migration to %i and then to the newest',
    async (to) => {
      const change = async (verb: string): Promise<void> => {
        for (const [what, kind] of [
          ['ALL', 'TABLES'],
          ['ALL', 'SEQUENCES'],
          ['EXECUTE', 'FUNCTIONS'],
          ['ALL', 'SCHEMAS'],
        ])
          await deployerPool.query(
            `ALTER DEFAULT PRIVILEGES ${verb === 'TO' ? 'GRANT' : 'REVOKE'} ${what} ON ${kind} ${verb} ${shop}`,
          )
      }
      await change('TO')
      try {
        await lockstep().migrate({ to })
        await lockstep().migrate()
        expect(await given()).toEqual([])
      } finally {
        await change('FROM')
      }
    },
  )

  test('keep earlier grants, and the objects of an application in the same schema', async () => {
    await deployerPool.query(`CREATE SCHEMA planted; GRANT USAGE ON SCHEMA planted TO PUBLIC;
      CREATE TABLE planted.orders (id int); GRANT SELECT ON planted.orders TO PUBLIC;
      CREATE SEQUENCE planted.numbers; GRANT USAGE ON SEQUENCE planted.numbers TO PUBLIC;
      CREATE FUNCTION planted.price(int) RETURNS int LANGUAGE sql AS 'SELECT 1'`)
    await lockstep().migrate()
    await deployerPool.query(`GRANT EXECUTE ON FUNCTION planted.outbox_status TO ${shop}`)
    // As after a release that changes all functions.
    await deployerPool.query(`UPDATE planted.functions SET hash = 'of an older text'`)
    await lockstep().migrate()
    expect((await given()).toSorted()).toEqual(['numbers', 'orders', 'outbox_status', 'price', 'schema'])
    await shopPool.query(`SELECT planted.price(1), nextval('planted.numbers'), count(*) FROM planted.orders`)
  })
})

describe('a schema in which others can create', () => {
  const revoke = (who: string): string => `REVOKE CREATE ON SCHEMA "planted" FROM ${who};`

  test.each([
    ['every role', 'PUBLIC'],
    ['one role', mallory],
  ])('is rejected by migrate() and the doctor, with what to run: %s', async (_, who) => {
    const lockstep = new Lockstep(deployerPool, { schema: 'planted' })
    await deployerPool.query(`CREATE SCHEMA planted; GRANT CREATE ON SCHEMA planted TO ${who}`)
    const error: unknown = await lockstep.migrate().catch((reason: unknown) => reason)
    expect(error).toBeInstanceOf(SchemaNotOwnedError)
    expect(error).toMatchObject({ advice: expect.stringContaining(revoke(who)) })
    await deployerPool.query(revoke(who))
    await lockstep.migrate()
    expect((await lockstep.doctor()).filter(({ name }) => name === 'grants')).toMatchObject([{ level: 'ok' }])
    await deployerPool.query(`GRANT CREATE ON SCHEMA planted TO ${who}`)
    expect((await lockstep.doctor()).filter(({ name }) => name === 'grants')).toMatchObject([
      { level: 'fail', found: expect.stringContaining(who), advice: expect.stringContaining(revoke(who)) },
    ])
    await expect(lockstep.migrate()).rejects.toBeInstanceOf(SchemaNotOwnedError)
    await lockstep.close()
  })

  test('is accepted if only the owner, a superuser or a member of the owner’s role can', async () => {
    const member = `member_${database.name}`
    const { rows } = await admin.query<{ me: string }>('SELECT quote_ident(current_user) AS me')
    await admin.query(`CREATE ROLE ${member} IN ROLE ${deployer}`)
    try {
      await deployerPool.query(`CREATE SCHEMA planted; GRANT ALL ON SCHEMA planted TO ${member}, ${rows[0]?.me}`)
      expect(await new Lockstep(deployerPool, { schema: 'planted' }).migrate()).toMatchObject({ to: KNOWN_VERSION })
    } finally {
      await admin.query(`DROP OWNED BY ${member}; DROP ROLE ${member}`)
    }
  })

  test('calls no overload that fits less well than its own function', async () => {
    const lockstep = new Lockstep(deployerPool, { schema: 'planted' })
    await lockstep.migrate()
    await deployerPool.query(`GRANT CREATE, USAGE ON SCHEMA planted TO ${mallory}`)
    // Of what only functions call that run with the owner's rights: for every integer argument one of another size, for text a name.
    const { rows } = await admin.query<{ name: string; types: string[] }>(
      `SELECT proname AS name, ARRAY(SELECT format_type(t, NULL) FROM unnest(proargtypes) WITH ORDINALITY AS a(t, n) ORDER BY n) AS types
         FROM pg_proc WHERE pronamespace = 'planted'::regnamespace AND pronargs > 0 AND proname <> ALL ($1)`,
      [functionsOf(ROLE_NAMES).map((each) => each.replace(/\(.*/, ''))],
    )
    const others: Record<string, string[]> = {
      integer: ['smallint', 'bigint'],
      bigint: ['smallint', 'integer'],
      smallint: ['integer', 'bigint'],
      text: ['name', 'character varying'],
    }
    const planted = new Set<string>()
    for (const { name, types } of rows) {
      for (const [place, type] of types.entries()) {
        for (const other of others[type] ?? []) {
          const given = types.with(place, other)
          const signature = `planted.${name}(${given.join(', ')})`
          if (planted.has(signature)) continue
          planted.add(signature)
          await malloryPool
            .query(`CREATE FUNCTION ${signature} RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''public.ran'')'`)
            .catch(() => undefined)
        }
      }
    }
    expect(planted).toContain('planted.outbox_group_lock(smallint)')
    await malloryPool.query(
      `CREATE FUNCTION planted.outbox_append(text, text, json, bytea, json) RETURNS bigint LANGUAGE sql AS 'SELECT nextval(''public.ran'')'`,
    )
    await deployerPool.query(`SELECT planted.enqueue('t', 'k', '1'), planted.enqueue_bytes('t', 'k', '1')`)
    const fresh = new Lockstep(deployerPool, { schema: 'planted' })
    await fresh.transaction({ lock: key`A:${1}` }, async (tx) => {
      await tx.enqueue({ topic: 't', key: 'a', payload: 1 })
      await tx.enqueue({ topic: 't', key: 'b', payload: 2 })
    })
    await deployerPool.query(`SELECT planted.outbox_lock(ARRAY['t'], ARRAY['k'])`)
    const lease = await fresh.leases.acquire(key`B:${1}`, { ttlMs: 30_000 })
    await lease.release()
    const stop = new AbortController()
    await fresh.outbox.dispatcher({ sink: async () => stop.abort() }).run({ signal: stop.signal })
    await fresh.outbox.status()
    await Promise.all([fresh.close(), lockstep.close()])
    expect(await ran()).toBe(false)
  })
})

test('accepts the current limit of events, and no other, from a role that does not own the schema', async () => {
  const owner = new Lockstep(admin, { schema: 'planted' })
  await owner.migrate()
  await owner.grant({ to: deployer, as: 'application' })
  const lockstep = new Lockstep(deployerPool, { schema: 'planted' })
  expect(await lockstep.migrate({ maxEventBytes: 1_000_000 })).toMatchObject({ applied: [] })
  await expect(lockstep.migrate({ maxEventBytes: 5000 })).rejects.toMatchObject({ code: 'LOCKSTEP_MIGRATION_FAILED' })
  await owner.migrate({ maxEventBytes: 5000 })
  expect(await lockstep.migrate({ maxEventBytes: 5000 })).toMatchObject({ applied: [] })
  await expect(lockstep.migrate({ maxEventBytes: 1_000_000 })).rejects.toMatchObject({
    code: 'LOCKSTEP_MIGRATION_FAILED',
  })
})
