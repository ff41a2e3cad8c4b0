import { CamelCasePlugin, Kysely, type PostgresCursorConstructor, PostgresDialect } from 'kysely'
import { PostgresJSDialect } from 'kysely-postgres-js'
import type pg from 'pg'
import type { Sql } from 'postgres'
import { describe, expect, test } from 'vitest'
import { loadOrm } from '../../tools/orms/load.ts'
import { type Database, kyselyOnPg, kyselyOnPostgresJs } from '../../tools/orms/underTest/kysely.ts'
import { DRIVERS, failureOf, testBench } from '../../tools/server/testing/workbench.ts'
import { DriverUnsupportedError, TransactionControlError } from '../index.ts'
import { clientOf, kysely } from './kysely.ts'
import { ormConformance } from './orms.conformance.ts'

const bench = await testBench()
// It has no types of its own.
const Cursor = loadOrm<PostgresCursorConstructor>('pg-cursor')

ormConformance(bench, kyselyOnPg)
ormConformance(bench, kyselyOnPostgresJs)

interface CamelCase {
  ormCounters: { name: string; value: number }
}

describe.each(DRIVERS)('kysely() on %s', (driver) => {
  test('keeps plugins and schemas in nested transactions', async () => {
    await bench.open(driver).lockstep.transaction({}, async (tx) => {
      const db = kysely<CamelCase>(tx, { plugins: [new CamelCasePlugin()] }).withSchema('public')
      expect(db.isTransaction).toBe(true)
      await db.transaction().execute(async (part) => {
        await part.insertInto('ormCounters').values({ name: driver, value: 7 }).execute()
        const { sql } = part.selectFrom('ormCounters').selectAll().compile()
        expect(sql).toBe('select * from "public"."orm_counters"')
      })
    })
  })

  test('nests in transactions that the caller ends', async () => {
    await bench.open(driver).lockstep.transaction({}, async (tx) => {
      const db = kysely<Database>(tx)
      const kept = await db.startTransaction().execute()
      await kept.insertInto('notes').values({ id: 'kept' }).execute()
      await kept.commit().execute()
      const undone = await db.startTransaction().execute()
      await undone.insertInto('notes').values({ id: 'undone' }).execute()
      await undone.rollback().execute()
    })
    expect(await bench.notes()).toEqual(['kept'])
  })

  test('nests read only, and refuses another isolation level', async () => {
    const failed = bench.open(driver).lockstep.transaction({ isolation: 'serializable' }, async (tx) => {
      const db = kysely<Database>(tx)
      await db
        .transaction()
        .setIsolationLevel('serializable')
        .execute((part) => part.insertInto('notes').values({ id: 'same' }).execute())
      expect(() => db.transaction().setIsolationLevel('read committed')).toThrow(TransactionControlError)
      const reading = db.transaction().setAccessMode('read only')
      expect(
        await failureOf(reading.execute((part) => part.insertInto('notes').values({ id: 'refused' }).execute())),
      ).toMatchObject({ code: '25006' })
      await db.insertInto('notes').values({ id: 'after' }).execute()
    })
    await failed
    expect(await bench.notes()).toEqual(['after', 'same'])
  })

  test('streams rows', async () => {
    await bench.admin.query(`INSERT INTO notes SELECT 'n' || n FROM generate_series(1, 25) n`)
    const seen: string[] = []
    await bench.open(driver).lockstep.transaction({}, async (tx) => {
      const db = kysely<Database>(tx, driver === 'pg' ? { cursor: Cursor } : {})
      for await (const { id } of db.selectFrom('notes').selectAll().orderBy('id').stream(10)) seen.push(id)
      await db.insertInto('notes').values({ id: 'after' }).execute()
    })
    expect(seen).toHaveLength(25)
  })

  test('logs what it sends', async () => {
    const logged: string[] = []
    await bench.open(driver).lockstep.transaction({}, (tx) =>
      kysely<Database>(tx, { log: ({ query }) => void logged.push(query.sql) })
        .selectFrom('notes')
        .selectAll()
        .execute(),
    )
    expect(logged).toEqual(['select * from "notes"'])
  })
})

describe('clientOf()', () => {
  test('reports nothing to the log, and refuses after the end', async () => {
    const { lockstep, pool } = bench.open('pg')
    const logged: string[] = []
    const db = new Kysely<Database>({
      dialect: new PostgresDialect({ pool: pool as pg.Pool }),
      log: ({ level }) => void logged.push(level),
    })
    let kept: object | undefined
    await db.transaction().execute(async (trx) => {
      kept = clientOf(trx)
      await (await lockstep.join(kept, { lock: 'Account:1' })).query('INSERT INTO notes VALUES ($1)', ['joined'])
    })
    expect(logged).toEqual(['query', 'query'])
    expect(await bench.notes()).toEqual(['joined'])
    await expect(lockstep.join(kept as object)).rejects.toThrow('already committed')
  })

  test('refuses a transaction of a dialect that is not on pg', async () => {
    const { pool } = bench.open('postgres.js')
    const { lockstep } = bench.open('pg')
    const db = new Kysely<Database>({ dialect: new PostgresJSDialect({ postgres: pool as Sql }) })
    const failed = db.transaction().execute((trx) => lockstep.join(clientOf(trx)))
    expect(await failureOf(failed)).toBeInstanceOf(DriverUnsupportedError)
  })
})
