import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, failureOf } from '../../tools/server/testing/workbench.ts'
import { EventInvalidError, InvalidOptionError, Lockstep, LockTimeoutError } from '../index.ts'

/** A foreign outbox table, imported into the outbox while its writers continue. */

const bench = await outboxBench()

const ROWS = { topic: 'shop.{kind}', key: '{aggregate}', order: 'id', headers: 'meta', sent: 'sent_at' }
const reason = 'a test'

let tables = 0
async function oldTable(columns = 'payload jsonb, meta jsonb'): Promise<string> {
  const name = `old_outbox_${++tables}`
  await bench.admin.query(
    `CREATE TABLE ${name} (id bigserial PRIMARY KEY, kind text NOT NULL, aggregate int, ${columns}, sent_at timestamptz)`,
  )
  return name
}

const insert = (table: string, aggregate: number | string, n: number): string =>
  `INSERT INTO ${table} (kind, aggregate, payload, meta) VALUES ('order', ${aggregate}, '{"n": ${n}}', '{"by": "ann"}')`

async function numbers(key: string): Promise<number[]> {
  const { rows } = await bench.admin.query<{ n: number }>(
    `SELECT (payload->>'n')::int AS n FROM lockstep.outbox_events WHERE topic = 'shop.order' AND key = $1 ORDER BY seq`,
    [key],
  )
  return rows.map(({ n }) => n)
}

describe.each(DRIVERS)('import, %s', (driver) => {
  test('copies what is pending in order, then follows old and new writers', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const table = await oldTable()
    for (let n = 1; n <= 4; n++) await bench.admin.query(`${insert(table, 1, n)}; ${insert(table, 2, n)}`)
    await bench.admin.query(`UPDATE ${table} SET sent_at = now() WHERE id <= 2`)
    const preview = await lockstep.outbox.import(table, { ...ROWS, preview: true })
    expect(preview).toMatchObject({ table: `public.${table}`, state: 'preview', pending: 6, streams: 2, refused: 0 })
    expect(await numbers('1')).toEqual([])

    const imported = await lockstep.outbox.import(table, { ...ROWS, reason, by: 'ann' })
    expect(imported).toMatchObject({ state: 'active', pending: 0, copied: 6, gone: 0, streams: 2, missing: 0, late: 0 })
    expect(await numbers('1')).toEqual([2, 3, 4])
    // Old code, new code, and one that rolls back.
    await bench.admin.query(insert(table, 1, 5))
    await lockstep.transaction({}, (tx) => tx.enqueue({ topic: 'shop.order', key: '1', payload: { n: 6 } }))
    await bench.admin.query(`BEGIN; ${insert(table, 1, 100)}; ROLLBACK`)
    await bench.admin.query(insert(table, 1, 7))
    expect(await numbers('1')).toEqual([2, 3, 4, 5, 6, 7])
    const { rows } = await bench.admin.query(
      `SELECT headers FROM lockstep.outbox_events WHERE key = '1' AND seq IN (1, 4) ORDER BY seq`,
    )
    expect(rows.map(({ headers }) => headers)).toEqual([
      { by: 'ann', 'imported-id': '3' },
      { by: 'ann', 'imported-id': '9' },
    ])

    // Again: nothing comes twice, and it says how it stands.
    expect(await lockstep.outbox.import(table, { ...ROWS, reason })).toMatchObject({ state: 'active', copied: 6 })
    expect(await numbers('1')).toHaveLength(6)
    expect(await failureOf(lockstep.outbox.import(table, { ...ROWS, key: '{kind}', reason }))).toBeInstanceOf(
      InvalidOptionError,
    )
    await bench.admin.query(`UPDATE ${table} SET sent_at = now() WHERE id = 4`)
    expect(await lockstep.outbox.import(table, { ...ROWS, reason })).toMatchObject({ sentSince: 1 })

    await lockstep.outbox.finishImport(table, { reason: 'no old code is left', by: 'ann' })
    await bench.admin.query(insert(table, 1, 8))
    expect(await numbers('1')).toHaveLength(6)
    const audit = await bench.admin.query('SELECT verb, by_name, reason FROM lockstep.outbox_audit ORDER BY id')
    expect(audit.rows).toEqual([
      { verb: 'import', by_name: null, reason: `public.${table}: a test` },
      { verb: 'import finish', by_name: 'ann', reason: `public.${table}: no old code is left` },
    ])
    expect(await failureOf(lockstep.outbox.finishImport(table, { reason }))).toBeInstanceOf(InvalidOptionError)
  })
})

/** The protocol, step by step, as the functions of the schema have it. */
async function begin(lockstep: Lockstep, table: string): Promise<number> {
  const stop = new AbortController()
  stop.abort()
  expect((await lockstep.outbox.import(table, { ...ROWS, reason, signal: stop.signal })).state).toBe('copying')
  const { rows } = await bench.admin.query<{ id: number }>(
    `SELECT id FROM lockstep.outbox_imports WHERE relation = 'public.${table}' AND finished_at IS NULL`,
  )
  return rows[0]?.id as number
}

test('wakes a dispatcher that sleeps', async () => {
  const [{ lockstep }, { lockstep: other }] = [bench.open('pg', { max: 6 }), bench.open('pg', { max: 6 })]
  const dispatcher = bench.dispatch(other, { ttlMs: 500, sleepAfterMs: 1000 })
  await eventually(async () => {
    const { rowCount } = await bench.admin.query(
      `SELECT FROM lockstep.outbox_listeners WHERE until > clock_timestamp() + interval '1 day'`,
    )
    return rowCount === 1
  })
  const table = await oldTable()
  await bench.admin.query(insert(table, 1, 1))
  await lockstep.outbox.import(table, { ...ROWS, reason })
  await dispatcher.until(1)
  await lockstep.outbox.finishImport(table, { reason })
})

test('a row that is committed late with a smaller number comes before later rows of its key', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const table = await oldTable()
  const late = await bench.admin.connect()
  try {
    await late.query(`BEGIN; ${insert(table, 1, 1)}`)
    await bench.admin.query(insert(table, 2, 1))
    const id = await begin(lockstep, table)
    await bench.admin.query(`SELECT lockstep.outbox_import_copy($1, 1000)`, [id])
    expect([await numbers('1'), await numbers('2')]).toEqual([[], [1]])
    // Number 1 is committed, and then number 3 of the same key is written: a watermark at 2 would read only the latter.
    await late.query('COMMIT')
  } finally {
    late.release()
  }
  await bench.admin.query(insert(table, 1, 2))
  const imported = await lockstep.outbox.import(table, { ...ROWS, reason })
  expect(imported).toMatchObject({ copied: 3, missing: 0, late: 0 })
  expect(await numbers('1')).toEqual([1, 2])
  await lockstep.outbox.finishImport(table, { reason })
})

test('the cut waits for open writers, and gives up in time', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const table = await oldTable()
  const open = await bench.admin.connect()
  let importing: Promise<unknown>
  try {
    await open.query(`BEGIN; ${insert(table, 1, 1)}`)
    expect(await failureOf(lockstep.outbox.import(table, { ...ROWS, reason, waitMs: 50 }))).toBeInstanceOf(
      LockTimeoutError,
    )
    expect((await bench.admin.query(`SELECT FROM pg_trigger WHERE tgrelid = '${table}'::regclass`)).rowCount).toBe(0)
    importing = lockstep.outbox.import(table, { ...ROWS, reason, waitMs: 60_000 })
    await eventually(async () => {
      const { rowCount } = await bench.admin.query(
        `SELECT FROM pg_locks WHERE relation = '${table}'::regclass AND mode = 'ShareRowExclusiveLock' AND NOT granted`,
      )
      return rowCount === 1
    })
    await open.query('COMMIT')
  } finally {
    open.release()
  }
  expect(await importing).toMatchObject({ state: 'active', copied: 1 })
  expect(await numbers('1')).toEqual([1])
  await lockstep.outbox.finishImport(table, { reason })
})

test('a step that is rolled back is done again, and none twice', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const table = await oldTable()
  await bench.admin.query(
    `INSERT INTO ${table} (kind, aggregate, payload) SELECT 'order', n % 7, json_build_object('n', n) FROM generate_series(1, 2500) AS n`,
  )
  const id = await begin(lockstep, table)
  await bench.admin.query(`SELECT lockstep.outbox_import_copy(${id}, 1000)`)
  const dying = await bench.admin.connect()
  await dying.query(`BEGIN; SELECT lockstep.outbox_import_copy(${id}, 1000); ROLLBACK`)
  dying.release()
  // Two at the same time: they take turns.
  const both = await Promise.all([1, 2].map(() => lockstep.outbox.import(table, { ...ROWS, reason })))
  expect(both.map(({ state, copied, missing }) => [state, copied, missing])).toEqual([
    ['active', 2500, 0],
    ['active', 2500, 0],
  ])
  for (let key = 0; key < 7; key++) {
    const all = Array.from({ length: 2500 }, (_, n) => n + 1).filter((n) => n % 7 === key)
    expect(await numbers(String(key))).toEqual(all)
  }
  await lockstep.outbox.finishImport(table, { reason })
})

test('rows that the outbox refuses are counted before, and named', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const table = await oldTable('payload text, meta jsonb')
  await bench.admin.query(`${insert(table, 1, 1)}; ${insert(table, 'NULL', 2)};
    INSERT INTO ${table} (kind, aggregate, payload) VALUES ('order', 3, 'no JSON'), ('order', 3, NULL);
    INSERT INTO ${table} (kind, aggregate, payload, meta) VALUES ('order', 3, '{}', '{"a": 1}')`)
  const preview = await lockstep.outbox.import(table, { ...ROWS, preview: true })
  expect(preview).toMatchObject({ pending: 5, refused: 4, refusedIds: ['2', '3', '4', '5'] })
  const refused = await failureOf(lockstep.outbox.import(table, { ...ROWS, reason }))
  expect(refused).toBeInstanceOf(EventInvalidError)
  expect(String(refused)).toContain('2, 3, 4, 5')
  await bench.admin.query(`UPDATE ${table} SET sent_at = now() WHERE id > 1`)
  expect(await lockstep.outbox.import(table, { ...ROWS, reason })).toMatchObject({
    state: 'active',
    copied: 1,
    gone: 4,
  })
  await lockstep.outbox.finishImport(table, { reason })
})

test('bytes, enums, uuids and names that need quotes are imported as they are', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  await bench.admin.query(`CREATE TYPE mood AS ENUM ('so so');
    CREATE SCHEMA "my ""shop'";
    CREATE TABLE "my ""shop'"."out'box %s" (
      "I D" uuid PRIMARY KEY DEFAULT gen_random_uuid(), "at %s" timestamptz NOT NULL DEFAULT clock_timestamp(), "kind'" mood, "the key" uuid, body bytea,
      done boolean NOT NULL DEFAULT false);
    INSERT INTO "my ""shop'"."out'box %s" ("kind'", "the key", body) VALUES ('so so', 'c0ffee00-0000-4000-8000-000000000000', '\\x00ff')`)
  const options = {
    topic: "it's {kind'}",
    key: '{the key}',
    order: 'at %s',
    id: 'I D',
    payload: 'body',
    sent: 'done',
    reason,
  }
  const table = `"my ""shop'"."out'box %s"`
  expect(await lockstep.outbox.import(table, options)).toMatchObject({ table, state: 'active', copied: 1, missing: 0 })
  await bench.admin.query(
    `INSERT INTO ${table} ("kind'", "the key", body) VALUES ('so so', 'c0ffee00-0000-4000-8000-000000000000', '\\x01')`,
  )
  await bench.admin.query(
    `INSERT INTO ${table} ("kind'", "the key", body, done) VALUES ('so so', 'c0ffee00-0000-4000-8000-000000000000', '\\x02', true)`,
  )
  const { events } = await lockstep.outbox.events({ payloads: true })
  expect(events.map(({ topic, key, seq, payload }) => [topic, key, seq, payload])).toEqual([
    ["it's so so", 'c0ffee00-0000-4000-8000-000000000000', 1, Buffer.from([0, 255])],
    ["it's so so", 'c0ffee00-0000-4000-8000-000000000000', 2, Buffer.from([1])],
  ])
  await lockstep.outbox.finishImport(table, { reason })
})

test('a writer needs no grant, and what options say is never SQL', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const table = await oldTable()
  const writer = `old_writer_${tables}_${process.pid}`
  await bench.admin.query(
    `CREATE ROLE ${writer}; GRANT INSERT ON ${table} TO ${writer}; GRANT USAGE ON SEQUENCE ${table}_id_seq TO ${writer}`,
  )
  try {
    await lockstep.outbox.import(table, { ...ROWS, reason })
    await bench.admin.query(`SET ROLE ${writer}; ${insert(table, 1, 1)}; RESET ROLE`)
    expect(await numbers('1')).toEqual([1])
    await lockstep.outbox.finishImport(table, { reason })
  } finally {
    await bench.admin.query(`DROP OWNED BY ${writer}; DROP ROLE ${writer}`)
  }
  await bench.admin.query(
    `CREATE TABLE parent_${table} (LIKE ${table} INCLUDING ALL); CREATE TABLE child_${table} () INHERITS (parent_${table})`,
  )
  const evil = `x'; DROP TABLE ${table}; --`
  for (const [name, options] of [
    [evil, ROWS],
    ['lockstep.outbox_events', ROWS],
    ['pg_class', ROWS],
    [`parent_${table}`, ROWS],
    [table, { ...ROWS, topic: `{${evil}}` }],
    [table, { ...ROWS, order: `id; DROP TABLE ${table}` }],
    [table, { ...ROWS, payload: `payload)::text FROM ${table} --` }],
    [table, { ...ROWS, id: 'kind' }],
    [table, { ...ROWS, order: 'aggregate' }],
    [table, { ...ROWS, headers: 'kind' }],
    [table, { ...ROWS, key: '{payload}' }],
    [table, { ...ROWS, key: '{}' }],
    [table, { ...ROWS, topic: '' }],
  ] as const)
    expect(
      await failureOf(lockstep.outbox.import(name, { ...options, preview: true })),
      `${name} ${JSON.stringify(options)}`,
    ).toBeInstanceOf(InvalidOptionError)
  const literal = { ...ROWS, topic: `t' || (SELECT 1/0) || '` }
  expect(await lockstep.outbox.import(table, { ...literal, preview: true })).toMatchObject({ pending: 1, streams: 1 })
  expect(await failureOf(lockstep.outbox.import(table, ROWS))).toBeInstanceOf(InvalidOptionError)
})

test('a column that is computed when it is read is refused: a trigger does not have its value', async ({ skip }) => {
  const { rows } = await bench.admin.query<{ version: number }>(
    `SELECT current_setting('server_version_num')::int AS version`,
  )
  skip((rows[0]?.version ?? 0) < 180_000, 'PostgreSQL has virtual columns from version 18 on')
  const { lockstep } = bench.open('pg', { max: 6 })
  const table = await oldTable('payload jsonb, meta jsonb, n int GENERATED ALWAYS AS (1) VIRTUAL')
  await bench.admin.query(`ALTER TABLE ${table}
    ADD body jsonb GENERATED ALWAYS AS (payload) VIRTUAL, ADD heads jsonb GENERATED ALWAYS AS (meta) VIRTUAL,
    ADD sent boolean GENERATED ALWAYS AS (kind = 'old') VIRTUAL, ADD stored jsonb GENERATED ALWAYS AS (payload) STORED`)
  for (const options of [
    { ...ROWS, payload: 'body' },
    { ...ROWS, headers: 'heads' },
    { ...ROWS, sent: 'sent' },
    { ...ROWS, key: '{n}' },
  ]) {
    const refused = await failureOf(lockstep.outbox.import(table, { ...options, reason }))
    expect(refused, JSON.stringify(options)).toBeInstanceOf(InvalidOptionError)
    expect(String(refused)).toContain('STORED')
  }
  await lockstep.outbox.import(table, { ...ROWS, payload: 'stored', reason })
  await bench.admin.query(insert(table, 1, 1))
  expect(await numbers('1')).toEqual([1])
  await lockstep.outbox.finishImport(table, { reason })
})

test('a member of the owner’s role can import, unless policies hide rows from it', async () => {
  const table = await oldTable()
  const [group, member, schema] = ['group', 'member', 'imports'].map((each) => `${each}_${bench.name}`)
  await bench.admin.query(`CREATE ROLE ${group}; CREATE ROLE ${member} LOGIN; GRANT ${group} TO ${member};
    CREATE SCHEMA ${schema} AUTHORIZATION ${group}; ALTER TABLE ${table} OWNER TO ${member}`)
  const url = new URL(bench.url)
  url.username = member as string
  const pool = new pg.Pool({ connectionString: url.href, max: 3 })
  const lockstep = new Lockstep(pool, { schema: schema as string })
  try {
    await lockstep.migrate()
    await bench.admin.query(
      `ALTER TABLE ${table} ENABLE ROW LEVEL SECURITY; ALTER TABLE ${table} FORCE ROW LEVEL SECURITY`,
    )
    const hidden = await failureOf(lockstep.outbox.import(table, { ...ROWS, preview: true }))
    expect(hidden).toBeInstanceOf(InvalidOptionError)
    expect(String(hidden)).toContain('policies hide rows')
    await bench.admin.query(`ALTER TABLE ${table} DISABLE ROW LEVEL SECURITY`)
    expect(await lockstep.outbox.import(table, { ...ROWS, reason })).toMatchObject({ state: 'active' })
    const { rows } = await bench.admin.query(
      `SELECT pg_get_userbyid(p.proowner) AS owner FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE t.tgrelid = '${table}'::regclass`,
    )
    expect(rows).toEqual([{ owner: group }])
    // The schema is as sound as before for those who migrate it.
    await lockstep.migrate()
    await lockstep.outbox.finishImport(table, { reason })
  } finally {
    await lockstep.close()
    await pool.end()
    await bench.admin.query(
      `DROP SCHEMA ${schema} CASCADE; DROP OWNED BY ${member}, ${group}; DROP ROLE ${member}, ${group}`,
    )
  }
})
