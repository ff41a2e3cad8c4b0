import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { testDatabase } from '../../tools/server/testDatabase.ts'

const database = await testDatabase()
const owner = new pg.Pool({ connectionString: database.url, max: 2 })
afterAll(() => owner.end())

const TYPES = `ARRAY['int2', 'int4', 'int8', 'text', 'bytea', 'uuid', 'xid8', 'bool', 'bit', 'varbit', 'json', 'oid', 'regclass']::regtype[]`

/** Something else of the same name in the place of every function that the body calls, every operator and every type. */
const TRAPS = `
  CREATE SCHEMA trap;
  DO $do$
  DECLARE
    body text := (SELECT prosrc FROM pg_proc WHERE oid = 'lockstep.outbox_append'::regproc);
    f record;
  BEGIN
    FOR f IN SELECT p.oid, p.proname, pg_get_function_result(p.oid) AS result, pg_get_function_identity_arguments(p.oid) AS arguments
               FROM pg_proc p
              WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND NOT p.proretset AND p.provariadic = 0
                AND p.proargmodes IS NULL AND body ~ ('\\m' || p.proname || '\\(') LOOP
      EXECUTE format('CREATE FUNCTION trap.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L', f.proname, replace(f.arguments, '"any"', 'json'), f.result,
                     format('BEGIN RAISE EXCEPTION %L; END', 'trapped: function ' || f.proname));
    END LOOP;
    FOR f IN SELECT o.oid, o.oprname, o.oprleft::regtype::text AS l, o.oprright::regtype::text AS r, o.oprresult::regtype::text AS result
               FROM pg_operator o
              WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprleft::regtype = ANY(${TYPES}) AND o.oprright::regtype = ANY(${TYPES}) LOOP
      EXECUTE format('CREATE FUNCTION trap.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS %L', 'operator_' || f.oid, f.l, f.r, f.result,
                     format('BEGIN RAISE EXCEPTION %L; END', 'trapped: operator ' || replace(f.oprname, '%', '%%')));
      EXECUTE format('CREATE OPERATOR trap.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = trap.%I)', f.oprname, f.l, f.r, 'operator_' || f.oid);
    END LOOP;
    FOR f IN SELECT t.name FROM unnest(ARRAY['uuid', 'xid8', 'bytea', 'regclass', 'json', 'text']) AS t(name) LOOP
      EXECUTE format('CREATE DOMAIN trap.%I AS int CHECK (false)', f.name);
    END LOOP;
  END
  $do$`

const session = new pg.Client({
  connectionString: database.url,
  options: '-c search_path=trap,pg_catalog',
})
const append = (topic: string): Promise<pg.QueryResult<{ seq: string }>> =>
  session.query(`SELECT lockstep.outbox_append($1, 'k', '{}', NULL, '{"a": "b"}') AS seq`, [topic])

beforeAll(async () => {
  await owner.query(TRAPS)
  await session.connect()
})
afterAll(() => session.end())

test('has traps on the search path (control)', async () => {
  await expect(session.query('SELECT 1::bigint + 1')).rejects.toThrow('trapped: operator +')
  await expect(session.query(`SELECT sha256('x')`)).rejects.toThrow('trapped: function sha256')
  await expect(session.query(`SELECT NULL::int::uuid, 1::uuid`)).rejects.toThrow('check constraint')
})

let topics = 0

test('runs nothing of the caller’s search path with the rights of the owner', async () => {
  const topic = `trades${++topics}`
  const next = async (): Promise<number> => Number((await append(topic)).rows[0]?.seq)
  expect(await next()).toBe(1)
  // One that records a snapshot.
  await owner.query(`SELECT setval('lockstep.outbox_ids', 999)`)
  expect(await next()).toBe(2)
  expect((await owner.query('SELECT id::int FROM lockstep.outbox_ticks')).rows).toContainEqual({ id: 1000 })
  // Every slot has statements of its own, and in a new one the last number is looked for elsewhere.
  for (let slot = 1; slot < 8; slot++) {
    await owner.query(`SELECT setval('lockstep.outbox_slot', ${slot})`)
    expect(await next()).toBe(slot * 2 + 1)
    expect(await next()).toBe(slot * 2 + 2)
  }
  await owner.query(`SELECT setval('lockstep.outbox_slot', 0)`)
})

test('runs nothing of it when the event is rejected', async () => {
  await expect(append('')).rejects.toThrow('a topic and a key of 1 to 1000 bytes')
  await expect(append('x'.repeat(1001))).rejects.toThrow('a topic and a key of 1 to 1000 bytes')
  await session.query('BEGIN ISOLATION LEVEL SERIALIZABLE')
  await expect(append('trades')).rejects.toThrow('cannot be enqueued at SERIALIZABLE')
  await session.query('ROLLBACK')
})
