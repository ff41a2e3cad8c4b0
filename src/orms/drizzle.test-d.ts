import type { ExtractTablesWithRelations } from 'drizzle-orm'
import type { NodePgTransaction } from 'drizzle-orm/node-postgres'
import { integer, type PgDatabase, type PgQueryResultHKT, pgTable, text } from 'drizzle-orm/pg-core'
import { relations } from 'drizzle-orm/relations'
import type pg from 'pg'
import type { Sql } from 'postgres'
import { describe, expectTypeOf, test } from 'vitest'
import type { Lockstep } from '../index.ts'
import { clientOf, drizzle } from './drizzle.ts'
import * as postgresJs from './drizzle-postgres-js.ts'

const accounts = pgTable('accounts', { id: text('id').primaryKey(), balance: integer('balance').notNull() })
const entries = pgTable('entries', { id: text('id').primaryKey(), accountId: text('account_id').notNull() })
const accountRelations = relations(accounts, ({ many }) => ({ entries: many(entries) }))
const entryRelations = relations(entries, ({ one }) => ({
  account: one(accounts, { fields: [entries.accountId], references: [accounts.id] }),
}))
const schema = { accounts, entries, accountRelations, entryRelations }

type Schema = typeof schema

interface Events {
  accounts: { balance: number }
}

declare const lockstep: Lockstep<Events, pg.Pool>
declare const onPostgresJs: Lockstep<Events, Sql>

// Nothing here is run: the compiler is the test.
describe('drizzle()', () => {
  test('has the types of the schema, in relational queries as well', () =>
    lockstep.transaction({ lock: 'Account:1' }, async (tx) => {
      const db = drizzle(tx, { schema })
      expectTypeOf(db).toEqualTypeOf<NodePgTransaction<Schema, ExtractTablesWithRelations<Schema>>>()
      const found = await db.query.accounts.findFirst({ with: { entries: true } })
      expectTypeOf(found).toEqualTypeOf<
        { id: string; balance: number; entries: { id: string; accountId: string }[] } | undefined
      >()
      const rows = await db.select().from(accounts)
      expectTypeOf(rows).toEqualTypeOf<{ id: string; balance: number }[]>()
      // @ts-expect-error: no such table
      await db.query.positions?.findFirst()
      // @ts-expect-error: the balance is a number
      await db.insert(accounts).values({ id: '1', balance: '1' })
      await db.transaction(async (part) => {
        expectTypeOf(await part.query.entries.findFirst()).toEqualTypeOf<
          { id: string; accountId: string } | undefined
        >()
      })
      await tx.enqueue({ topic: 'accounts', key: '1', payload: { balance: 1 } })
    }))

  test('goes where a database of Drizzle is expected', () =>
    lockstep.transaction({}, async (tx) => {
      const read = (db: PgDatabase<PgQueryResultHKT, Schema>): unknown => db.select().from(accounts)
      read(drizzle(tx, { schema }))
      expectTypeOf((await drizzle(tx).execute('SELECT 1')).rows).toEqualTypeOf<Record<string, unknown>[]>()
    }))

  test('has the results of postgres.js on postgres.js', () =>
    onPostgresJs.transaction({}, async (tx) => {
      const db = postgresJs.drizzle(tx, { schema })
      expectTypeOf(await db.query.entries.findMany()).toEqualTypeOf<{ id: string; accountId: string }[]>()
      expectTypeOf((await db.execute('SELECT 1')).count).toEqualTypeOf<number>()
    }))

  test('refuses options that it does not have', () =>
    lockstep.transaction({}, async (tx) => {
      // @ts-expect-error: what is read under a lock is read from the database
      drizzle(tx, { cache: {} })
      // @ts-expect-error: no transaction
      drizzle({ schema })
    }))

  test('clientOf() takes a transaction of any schema', () => {
    expectTypeOf(clientOf).parameter(0).toExtend<object>()
    expectTypeOf<NodePgTransaction<Schema, ExtractTablesWithRelations<Schema>>>().toExtend<
      Parameters<typeof clientOf>[0]
    >()
  })
})
