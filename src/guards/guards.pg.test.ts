import { describe, expect, test } from 'vitest'
import pg from 'pg'
import { DRIVERS, failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import { InvalidOptionError, LockTimeoutError, WriteWithoutLockError } from '../errors.ts'
import type { Lockstep } from '../index.ts'
import { key } from '../locks/index.ts'
import { on } from '../observe/index.ts'
import { decide } from '../rollout/rollout.ts'
import type { GuardMode } from './guardMode.ts'
import type { Guard } from './guards.ts'

const bench = await testBench()
const SQLSTATE = 'LS002'

async function sql<Row extends pg.QueryResultRow>(text: string, values?: unknown[]): Promise<Row[]> {
  return (await bench.admin.query<Row>(text, values)).rows
}

let tables = 0

/** A guarded table of its own, with rows 1 to 3. */
async function guarded(
  mode: GuardMode = 'enforce',
  columns = 'id bigint PRIMARY KEY, balance integer NOT NULL DEFAULT 0',
): Promise<{
  table: string
  lockstep: Lockstep
  readonly counted: () => Promise<Pick<Guard, 'unlocked' | 'listed' | 'refused'>>
}> {
  const table = `accounts_${++tables}`
  const { lockstep } = bench.open('pg')
  await sql(`CREATE TABLE ${table} (${columns})`)
  await sql(`INSERT INTO ${table} (id) SELECT generate_series(1, 3)`)
  await lockstep.guards.add(table, { key: 'Account:{id}', mode })
  const counted = async (): Promise<Pick<Guard, 'unlocked' | 'listed' | 'refused'>> => {
    const guard = (await lockstep.guards.list()).find((each) => each.table === `public.${table}`) as Guard
    const { unlocked, listed, refused } = guard
    return { unlocked, listed, refused }
  }
  return { table, lockstep, counted }
}

const add = (table: string, id: number | string = 1): string =>
  `UPDATE ${table} SET balance = balance + 1 WHERE id = ${id}`
const NONE = { unlocked: 0, listed: 0, refused: 0 }

async function codeOfFailure(work: Promise<unknown>): Promise<unknown> {
  return ((await failureOf(work)) as { code?: unknown }).code
}

/** One session, rolled back at the end. */
async function inSession<T>(work: (client: pg.Client) => Promise<T>, url = bench.url): Promise<T> {
  const client = new pg.Client(url)
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

describe.each(DRIVERS)('a guard, %s', (driver) => {
  test.each(['read committed', 'repeatable read', 'serializable'] as const)(
    'passes a transaction that holds the lock, %s, and refuses the next one without it',
    async (isolation) => {
      const { table, counted } = await guarded()
      const { lockstep } = bench.open(driver)
      await lockstep.transaction({ lock: key`Account:${1}`, isolation }, (tx) => tx.query(add(table)))
      expect(await counted()).toEqual(NONE)
      // Of the same pool: what the last transaction stated has ended with it.
      for (let n = 0; n < 3; n++) {
        const failure = await failureOf(lockstep.transaction({ isolation }, (tx) => tx.query(add(table))))
        expect(failure).toBeInstanceOf(WriteWithoutLockError)
        expect(failure).toMatchObject({
          code: 'LOCKSTEP_WRITE_WITHOUT_LOCK',
          table: `public.${table}`,
          keys: ['Account:1'],
          cause: { code: SQLSTATE },
        })
        expect((failure as Error).message).toContain("lockstep.transaction({ lock: 'Account:1' })")
      }
      expect(await counted()).toEqual({ ...NONE, refused: 3 })
    },
  )

  test('refuses another key, and a shared lock', async () => {
    const { table, counted } = await guarded()
    const { lockstep } = bench.open(driver)
    const other = lockstep.transaction({ lock: key`Account:${2}` }, (tx) => tx.query(add(table)))
    await expect(other).rejects.toBeInstanceOf(WriteWithoutLockError)
    const shared = lockstep.transaction({ lockShared: key`Account:${1}` }, (tx) => tx.query(add(table)))
    await expect(shared).rejects.toBeInstanceOf(WriteWithoutLockError)
    expect(await counted()).toEqual({ ...NONE, refused: 2 })
  })

  test('passes callers that wait for each other, several keys, and a key beside a shared one', async () => {
    const { table, counted } = await guarded()
    const { lockstep } = bench.open(driver)
    const { lockstep: elsewhere } = bench.open(driver)
    const both = { lock: [key`Account:${1}`, key`Account:${2}`], lockShared: key`Account:${3}` }
    const write = (from: typeof lockstep): Promise<unknown> =>
      from.transaction(both, async (tx) => {
        await tx.query(add(table, 1))
        await tx.query(add(table, 2))
      })
    await Promise.all([lockstep, elsewhere, lockstep, elsewhere, elsewhere].map((from) => write(from)))
    expect(await counted()).toEqual(NONE)
    expect((await sql(`SELECT sum(balance)::int AS sum FROM ${table}`))[0]).toEqual({ sum: 10 })
  })

  test('passes once, combine, a nested transaction, and a savepoint', async () => {
    const { table, counted } = await guarded()
    const { lockstep } = bench.open(driver)
    await lockstep.once(key`Account:${9}`, {
      find: async (tx) => (await tx.query(`SELECT id FROM ${table} WHERE id = 9`)).rows[0],
      create: async (tx) => (await tx.query(`INSERT INTO ${table} VALUES (9) RETURNING id`)).rows[0] ?? {},
    })
    const combined = lockstep.combine({
      key: (id: number) => key`Account:${id}`,
      run: async (tx, ids: readonly number[]) => {
        await tx.query(add(table, ids[0] as number))
        return ids.map(() => 'done')
      },
    })
    await Promise.all([combined(1), combined(1), combined(2)])
    await lockstep.transaction({ lock: key`Account:${1}` }, async (tx) => {
      await tx.transaction({ lock: key`Account:${1}` }, (inner) => inner.query(add(table)))
      const undone = tx.savepoint(async (inner) => {
        await inner.query(add(table))
        throw new Error('undone')
      })
      await expect(undone).rejects.toThrow('undone')
      await tx.query(add(table))
    })
    expect(await counted()).toEqual(NONE)
  })

  test('passes lock rows of the table strategy', async () => {
    const { table, counted } = await guarded()
    const { lockstep } = bench.open(driver, { strategy: 'table' })
    await lockstep.transaction({ lock: key`Account:${1}` }, (tx) => tx.query(add(table)))
    await lockstep.transaction({ lock: key`Account:${1}` }, (tx) => tx.query(add(table)))
    const without = lockstep.transaction({}, (tx) => tx.query(add(table)))
    await expect(without).rejects.toBeInstanceOf(WriteWithoutLockError)
    expect(await counted()).toEqual({ ...NONE, refused: 1 })
  })

  test('reports a refusal as an event, and as the error of statements that go out with COMMIT', async () => {
    const { table } = await guarded()
    const { lockstep } = bench.open(driver)
    const heard: unknown[] = []
    bench.cleanUp(on('guard.refused', (event) => heard.push(event)))
    const late = lockstep.transaction({}, (tx) => tx.queryAtCommit(add(table)))
    await expect(late).rejects.toBeInstanceOf(WriteWithoutLockError)
    expect(heard).toEqual([{ schema: 'lockstep', table: `public.${table}`, key: 'Account:1' }])
  })
})

test('join() adds its locks to what the transaction states; a savepoint takes them back', async () => {
  const { table, lockstep, counted } = await guarded()
  const pool = new pg.Pool({ connectionString: bench.url, max: 1 })
  bench.cleanUp(() => pool.end())
  const client = await pool.connect()
  await client.query('BEGIN')
  await lockstep.join(client, { lock: key`Account:${1}` })
  await client.query('SAVEPOINT later')
  await lockstep.join(client, { lock: key`Account:${2}`, lockShared: key`Account:${3}` })
  await client.query(add(table, 1))
  await client.query(add(table, 2))
  await client.query('ROLLBACK TO SAVEPOINT later')
  expect(await codeOfFailure(client.query(add(table, 2)))).toBe(SQLSTATE)
  await client.query('ROLLBACK TO SAVEPOINT later')
  await client.query(add(table, 1))
  await client.query('COMMIT')
  expect(await codeOfFailure(client.query(add(table, 1)))).toBe(SQLSTATE)
  client.release()
  expect(await counted()).toEqual({ ...NONE, refused: 2 })
})

test('a guard of a lease passes lease.transaction() and lease.guard(), and not a lock or one of several permits', async () => {
  const { lockstep } = bench.open('pg')
  await sql('CREATE TABLE instances (id integer PRIMARY KEY, state text)')
  await sql(`INSERT INTO instances VALUES (1, 'new')`)
  await lockstep.guards.add('instances', { key: 'Instance:{id}', mode: 'enforce', held: 'lease' })
  const write = `UPDATE instances SET state = 'done'`
  await lockstep.lease(key`Instance:${1}`, { ttlMs: 5000 }, async (lease) => {
    await lease.transaction({}, (tx) => tx.query(write))
    await lockstep.transaction({}, async (tx) => {
      await lease.guard(tx)
      await tx.query(write)
    })
  })
  await lockstep.lease(key`Instance:${1}`, { ttlMs: 5000, permits: 2 }, async (lease) => {
    await expect(lease.transaction({}, (tx) => tx.query(write))).rejects.toThrow(/lease.transaction\(\) of a lease/)
  })
  const locked = lockstep.transaction({ lock: key`Instance:${1}` }, (tx) => tx.query(write))
  await expect(locked).rejects.toBeInstanceOf(WriteWithoutLockError)
})

test('finds the lock that plain SQL took by its id, exclusively, and counts it apart', async () => {
  const { table, counted } = await guarded()
  await inSession(async (client) => {
    await client.query(`BEGIN; SELECT pg_advisory_xact_lock(lockstep.lock_id('lock', 'Account:1'))`)
    await client.query(add(table))
    await client.query('COMMIT')
    // In one message, and after a write that was refused in the same one.
    await client.query(`BEGIN; DO $$ BEGIN
      BEGIN ${add(table, 2)}; EXCEPTION WHEN SQLSTATE '${SQLSTATE}' THEN NULL; END;
      PERFORM pg_advisory_xact_lock(lockstep.lock_id('lock', 'Account:2')); ${add(table, 2)};
    END $$; COMMIT`)
    await client.query(`BEGIN; SELECT pg_advisory_xact_lock_shared(lockstep.lock_id('lock', 'Account:1'))`)
    expect(await codeOfFailure(client.query(add(table)))).toBe(SQLSTATE)
    await client.query('ROLLBACK')
    expect(await codeOfFailure(client.query(add(table)))).toBe(SQLSTATE)
  })
  expect(await counted()).toEqual({ unlocked: 0, listed: 2, refused: 3 })
})

test('looks at the old and at the new key of a row', async () => {
  const { table, lockstep } = await guarded()
  const move = `UPDATE ${table} SET id = 7 WHERE id = 1`
  for (const held of [key`Account:${1}`, key`Account:${7}`]) {
    const failure = await failureOf(lockstep.transaction({ lock: held }, (tx) => tx.query(move)))
    expect(failure).toMatchObject({ keys: [held === 'Account:1' ? 'Account:7' : 'Account:1'] })
  }
  await lockstep.transaction({ lock: [key`Account:${1}`, key`Account:${7}`] }, (tx) => tx.query(move))
  await expect(lockstep.transaction({}, (tx) => tx.query(`DELETE FROM ${table} WHERE id = 7`))).rejects.toThrow(
    /DELETE/,
  )
})

test('refuses COPY, ON CONFLICT DO UPDATE and TRUNCATE; DO NOTHING writes nothing and passes', async () => {
  const { table, lockstep } = await guarded()
  const insert = `INSERT INTO ${table} VALUES (1, 5)`
  await sql(`${insert} ON CONFLICT DO NOTHING`)
  const upsert = `${insert} ON CONFLICT (id) DO UPDATE SET balance = 5`
  expect(await codeOfFailure(sql(upsert))).toBe(SQLSTATE)
  await lockstep.transaction({ lock: key`Account:${1}` }, (tx) => tx.query(upsert))
  expect(await codeOfFailure(sql(`TRUNCATE ${table}`))).toBe(SQLSTATE)
  expect(await codeOfFailure(sql(`COPY ${table} (id) FROM PROGRAM 'echo 77'`))).toBe(SQLSTATE)
  expect(await sql(`SELECT id::int FROM ${table} ORDER BY id`)).toEqual([{ id: 1 }, { id: 2 }, { id: 3 }])
  await lockstep.guards.set(table, 'observe')
  await sql(`TRUNCATE ${table}`)
  expect((await lockstep.guards.samples(table)).map(({ operation, key: of }) => [operation, of])).toEqual([
    ['TRUNCATE', undefined],
  ])
})

test('guards every partition: moved rows, direct writes, TRUNCATE of one; a new partition is reported and repaired', async () => {
  const { lockstep } = bench.open('pg')
  await sql(`CREATE TABLE parts (id integer, region text) PARTITION BY LIST (region)`)
  await sql(`CREATE TABLE parts_eu PARTITION OF parts FOR VALUES IN ('eu')`)
  await sql(`CREATE TABLE parts_us PARTITION OF parts FOR VALUES IN ('us')`)
  await lockstep.guards.add('parts', { key: 'Part:{region}:{id}', mode: 'enforce' })
  const eu = key`Part:${'eu'}:${1}`
  const us = key`Part:${'us'}:${1}`
  await lockstep.transaction({ lock: eu }, (tx) => tx.query(`INSERT INTO parts VALUES (1, 'eu')`))
  expect(await codeOfFailure(sql(`UPDATE parts_eu SET id = 2`))).toBe(SQLSTATE)
  expect(await codeOfFailure(sql('TRUNCATE parts_eu'))).toBe(SQLSTATE)
  const move = `UPDATE parts SET region = 'us'`
  await expect(lockstep.transaction({ lock: eu }, (tx) => tx.query(move))).rejects.toBeInstanceOf(WriteWithoutLockError)
  await expect(lockstep.transaction({ lock: us }, (tx) => tx.query(move))).rejects.toBeInstanceOf(WriteWithoutLockError)
  await lockstep.transaction({ lock: [eu, us] }, (tx) => tx.query(move))
  await sql(`CREATE TABLE parts_asia PARTITION OF parts FOR VALUES IN ('asia')`)
  expect(await codeOfFailure(sql(`INSERT INTO parts_asia VALUES (1, 'asia')`))).toBe(SQLSTATE)
  const guardOf = async (): Promise<Guard | undefined> =>
    (await lockstep.guards.list()).find((each) => each.table === 'public.parts')
  expect(await guardOf()).toMatchObject({ state: 'partial' })
  await lockstep.guards.add('parts', { key: 'Part:{region}:{id}' })
  expect(await guardOf()).toMatchObject({ state: 'active', mode: 'enforce' })
  expect(await codeOfFailure(sql('TRUNCATE parts_asia'))).toBe(SQLSTATE)
})

test('makes the same keys as the library, of every type, and passes a NULL', async () => {
  const { lockstep } = bench.open('pg')
  await sql(`CREATE TYPE mood AS ENUM ('ok:fine', '100%')`)
  await sql(`CREATE DOMAIN code AS varchar(40)`)
  await sql(
    `CREATE TABLE typed (small smallint, whole integer, big bigint, id uuid, amount numeric, name text, code code, mood mood, padded char(5),
       made text GENERATED ALWAYS AS (name || '/' || code) STORED)`,
  )
  const columns = ['small', 'whole', 'big', 'id', 'amount', 'name', 'code', 'mood', 'padded', 'made']
  await lockstep.guards.add('typed', { key: `Typed:${columns.map((each) => `{${each}}`).join(':')}`, mode: 'enforce' })
  const id = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'
  for (const name of ['plain', 'a:b', '%', '%3A', '%25:%', "o'clock", '"q" \\ $1', 'žluťoučký 🐎', '{id}']) {
    const wanted = key`Typed:${-7}:${42}:${9007199254740993n}:${id}:${1.5}:${name}:${name}:${'ok:fine'}:${'ab'}:${`${name}/${name}`}`
    await lockstep.transaction({ lock: wanted }, (tx) =>
      tx.query(`INSERT INTO typed VALUES (-7, 42, 9007199254740993, $1, 1.5, $2::text, $2::text, 'ok:fine', 'ab')`, [
        id,
        name,
      ]),
    )
  }
  await sql(`INSERT INTO typed (small) VALUES (1)`)
})

test('has one key for a table without columns in the template, also for TRUNCATE', async () => {
  const { lockstep } = bench.open('pg')
  await sql('CREATE TABLE settings (name text, value text)')
  await lockstep.guards.add('settings', { key: 'Settings:global', mode: 'enforce' })
  await lockstep.transaction({ lock: key`Settings:global` }, async (tx) => {
    await tx.query(`INSERT INTO settings VALUES ('a', 'b')`)
    await tx.query('TRUNCATE settings')
  })
  expect(await codeOfFailure(sql('TRUNCATE settings'))).toBe(SQLSTATE)
})

test('observe lets every write through, counts each row, and samples who wrote without literals', async () => {
  const { table, lockstep, counted } = await guarded('observe')
  const url = new URL(bench.url)
  url.searchParams.set('application_name', 'billing 2009')
  await inSession(async (client) => {
    await client.query(`UPDATE ${table} SET balance = 4711 WHERE id < 3 AND 'it''s secret' <> ''`)
    await client.query(`BEGIN; ${add(table)}; ROLLBACK`)
  }, url.href)
  await inSession((client) => client.query(`DELETE FROM ${table} WHERE id = $1`, [3]))
  expect(await counted()).toEqual({ ...NONE, unlocked: 4 })
  const samples = await lockstep.guards.samples(table)
  expect(samples.map(({ application }) => application).toSorted()).toEqual(['', 'billing 2009'])
  const legacy = samples.find(({ application }) => application === 'billing 2009')
  expect(legacy).toMatchObject({ operation: 'UPDATE', role: 'postgres' })
  expect(['Account:1', 'Account:2']).toContain(legacy?.key)
  expect(legacy?.query).toBe(`UPDATE ${table} SET balance = ? WHERE id < ? AND ? <> ?`)
  await lockstep.transaction({ lock: key`Account:${1}` }, (tx) => tx.query(add(table)))
  expect(await counted()).toEqual({ ...NONE, unlocked: 4 })
})

test('observing makes no writer wait for another, and no serialization failure', async () => {
  const { table, counted } = await guarded('observe')
  for (const isolation of ['read committed', 'repeatable read', 'serializable']) {
    await inSession((one) =>
      inSession(async (other) => {
        for (const client of [one, other])
          await client.query(`BEGIN ISOLATION LEVEL ${isolation}; SET lock_timeout = '5s'`)
        // Crosswise, on rows of their own: nothing but the guard is shared.
        await one.query(`INSERT INTO ${table} VALUES (101)`)
        await other.query(`INSERT INTO ${table} VALUES (202)`)
        await one.query(`INSERT INTO ${table} VALUES (102)`)
        await other.query(`INSERT INTO ${table} VALUES (201)`)
        for (const client of [one, other]) await client.query('COMMIT')
      }),
    )
    await sql(`DELETE FROM ${table} WHERE id > 100`)
  }
  expect((await counted()).unlocked).toBe(3 * 8)
})

test('divides keys by percent as the rollout does', async () => {
  const { table, lockstep } = await guarded({ percent: 30 })
  const ids = Array.from({ length: 200 }, (_, n) => n + 1000)
  const refused = await sql<{ id: number }>(
    `SELECT id FROM unnest($1::int[]) AS given (id) WHERE lockstep.guard_part(lockstep.lock_id('lock', 'Account:' || id)) < 3000`,
    [ids],
  )
  const decided = ids.filter((id) => {
    return decide({ percent: 30 }, { id: lockstep.lockId(key`Account:${id}`) }) === 'on'
  })
  expect(refused.map(({ id }) => id)).toEqual(decided)
  const [yes, no] = [decided[0], ids.find((id) => !decided.includes(id))]
  expect(await codeOfFailure(sql(`INSERT INTO ${table} VALUES (${yes})`))).toBe(SQLSTATE)
  await sql(`INSERT INTO ${table} VALUES (${no})`)
  expect(await codeOfFailure(sql(`TRUNCATE ${table}`))).toBe(SQLSTATE)
})

test('lets pass what a subscription applies', async () => {
  const { table, counted } = await guarded()
  await inSession((client) => client.query(`SET session_replication_role = replica; ${add(table)}`))
  expect(await counted()).toEqual(NONE)
})

test('serves a writer that has no rights in the schema, behind PgBouncer too', async () => {
  const { table, counted } = await guarded()
  await sql(`CREATE ROLE legacy_${bench.name} LOGIN; GRANT INSERT, UPDATE, SELECT ON ${table} TO legacy_${bench.name}`)
  bench.cleanUp(() => sql(`DROP OWNED BY legacy_${bench.name}; DROP ROLE legacy_${bench.name}`))
  const url = new URL(bench.url)
  url.username = `legacy_${bench.name}`
  await inSession(async (client) => expect(await codeOfFailure(client.query(add(table)))).toBe(SQLSTATE), url.href)
  expect(await counted()).toEqual({ ...NONE, refused: 1 })
  if (bench.pooledUrl === undefined) return
  const { lockstep } = bench.open('pg', { url: bench.pooledUrl })
  await lockstep.transaction({ lock: key`Account:${1}` }, (tx) => tx.query(add(table)))
  await inSession(
    async (client) => expect(await codeOfFailure(client.query(add(table)))).toBe(SQLSTATE),
    bench.pooledUrl,
  )
})

test('survives migrate(), and reports triggers that are disabled or gone, and a table that was renamed', async () => {
  const { table, lockstep } = await guarded()
  await lockstep.migrate()
  const state = async (): Promise<string | undefined> =>
    (await lockstep.guards.list()).find((each) => each.table.startsWith(`public.${table}`))?.state
  const found = async (): Promise<unknown> =>
    (await lockstep.doctor({ trial: false })).find(({ name }) => name === 'guards')
  expect(await state()).toBe('active')
  expect(await lockstep.doctor({ trial: false })).toContainEqual(
    expect.objectContaining({ name: 'schema', level: 'ok' }),
  )
  await sql(`ALTER TABLE ${table} DISABLE TRIGGER ALL`)
  expect(await state()).toBe('disabled')
  expect(await found()).toMatchObject({ level: 'warn', found: expect.stringContaining(`public.${table}`) })
  await lockstep.guards.add(table, { key: 'Account:{id}' })
  expect(await state()).toBe('active')
  await sql(`ALTER TABLE ${table} RENAME TO ${table}_renamed`)
  expect(await state()).toBe('moved')
  await lockstep.guards.add(`${table}_renamed`, { key: 'Account:{id}' })
  expect(await state()).toBe('active')
  await sql(`DROP TABLE ${table}_renamed`)
  expect(await state()).toBe('missing')
  await lockstep.guards.remove(`${table}_renamed`)
  expect(await state()).toBeUndefined()
})

test('removes everything that it made', async () => {
  const { table, lockstep } = await guarded()
  const { id } = (await lockstep.guards.list()).find((each) => each.table === `public.${table}`) as Guard
  const made = `SELECT proname AS name FROM pg_proc WHERE proname = 'guard_${id}'
    UNION ALL SELECT relname FROM pg_class WHERE relname LIKE 'guard_${id}_%'
    UNION ALL SELECT tgname FROM pg_trigger WHERE tgname LIKE 'lockstep_guard_${id}%'`
  expect(await sql(made)).toHaveLength(6)
  await lockstep.guards.remove(table)
  await sql(add(table))
  expect(await sql(made)).toEqual([])
  await expect(lockstep.guards.remove(table)).rejects.toBeInstanceOf(InvalidOptionError)
})

test.each([
  ['no_such_table', 'Account:{id}', /no_such_table/],
  ['wrong', 'Account:{no_such_column}', /no column no_such_column/],
  ['wrong', 'Account:{at}', /type timestamptz/],
  ['wrong', 'Account{id}', /whole segment/],
  ['wrong', '{id}', /too generic|no operation/],
  ['wrong', 'Account:{', /brace without a column/],
  ['wrong', 'Account:{}', /brace without a column/],
  ['wrong_view', 'Account:{id}', /not a table/],
  ['lockstep.leases', 'Account:{name}', /belongs to Lockstep/],
])('rejects the guard of %s by %s', async (table, template, complaint) => {
  const { lockstep } = bench.open('pg')
  await sql(`CREATE TABLE IF NOT EXISTS wrong (id integer, at timestamptz)`)
  await sql(`CREATE OR REPLACE VIEW wrong_view AS SELECT * FROM wrong`)
  const failure = await failureOf(lockstep.guards.add(table, { key: template }))
  expect((failure as Error).message).toMatch(complaint)
  expect((await lockstep.guards.list()).map((each) => each.table)).not.toContain('public.wrong')
})

test('names of tables, columns and keys are no SQL', async () => {
  const { lockstep } = bench.open('pg')
  const column = `OLD."; DROP TABLE precious; --'$$`
  await sql('CREATE TABLE precious (id integer)')
  await sql(`CREATE TABLE "O'dd; $b$ %s" (${pg.escapeIdentifier(column)} text)`)
  const literal = `It's OLD. $b$ %L %s; \\`
  await lockstep.guards.add(`"O'dd; $b$ %s"`, { key: `${literal}:{${column}}`, mode: 'enforce' })
  const insert = `INSERT INTO "O'dd; $b$ %s" VALUES ('x')`
  await lockstep.transaction({ lock: `${literal}:x` }, (tx) => tx.query(insert))
  expect(await codeOfFailure(sql(insert))).toBe(SQLSTATE)
  for (const table of [`precious'; DROP TABLE precious; --`, 'precious; DROP TABLE precious'])
    await expect(lockstep.guards.add(table, { key: 'A:{id}' })).rejects.toBeInstanceOf(InvalidOptionError)
  expect(await sql('SELECT count(*)::int AS n FROM precious')).toEqual([{ n: 0 }])
  await lockstep.guards.remove(`public."O'dd; $b$ %s"`)
})

test('gives up adding a guard to a table that is in use, with nothing changed', async () => {
  const { lockstep } = bench.open('pg')
  await sql('CREATE TABLE busy (id integer)')
  await inSession(async (client) => {
    await client.query('BEGIN; INSERT INTO busy VALUES (1)')
    await expect(lockstep.guards.add('busy', { key: 'Busy:{id}', waitMs: 50 })).rejects.toBeInstanceOf(LockTimeoutError)
    await client.query('INSERT INTO busy VALUES (2); COMMIT')
  })
  expect((await lockstep.guards.list()).map((each) => each.table)).not.toContain('public.busy')
})
