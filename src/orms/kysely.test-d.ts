import type { Generated, Kysely, Transaction as KyselyTransaction } from 'kysely'
import type pg from 'pg'
import type { Sql } from 'postgres'
import { describe, expectTypeOf, test } from 'vitest'
import type { Lockstep } from '../index.ts'
import { clientOf, kysely } from './kysely.ts'

interface Database {
  accounts: { id: string; balance: number; created_at: Generated<Date> }
}

declare const lockstep: Lockstep<{ accounts: { balance: number } }, pg.Pool>
declare const onPostgresJs: Lockstep<{ accounts: { balance: number } }, Sql>

// Nothing here is run: the compiler is the test.
describe('kysely()', () => {
  test('has the types of the database', () =>
    lockstep.transaction({ lock: 'Account:1' }, async (tx) => {
      const db = kysely<Database>(tx)
      expectTypeOf(db).toEqualTypeOf<KyselyTransaction<Database>>()
      const account = await db.selectFrom('accounts').selectAll().executeTakeFirstOrThrow()
      expectTypeOf(account).toEqualTypeOf<{ id: string; balance: number; created_at: Date }>()
      // @ts-expect-error: no such table
      db.selectFrom('positions')
      // @ts-expect-error: the balance is a number
      db.insertInto('accounts').values({ id: '1', balance: '1' })
      await db.transaction().execute(async (part) => {
        expectTypeOf(part).toEqualTypeOf<KyselyTransaction<Database>>()
      })
    }))

  test('goes where a Kysely is expected, on both drivers', () =>
    onPostgresJs.transaction({}, async (tx) => {
      const read = (db: Kysely<Database>): unknown => db.selectFrom('accounts').selectAll()
      read(kysely<Database>(tx, { plugins: [] }))
    }))

  test('refuses options that it does not have', () =>
    lockstep.transaction({}, async (tx) => {
      // @ts-expect-error: the dialect is given by the transaction
      kysely<Database>(tx, { dialect: {} })
    }))

  test('clientOf() takes a transaction, and no Kysely without one', () => {
    const take = (trx: KyselyTransaction<Database>, db: Kysely<Database>): void => {
      clientOf(trx)
      // @ts-expect-error: it has no transaction
      clientOf(db)
    }
    expectTypeOf(take).toBeFunction()
  })
})
