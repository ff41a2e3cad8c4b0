import { eq, sql } from 'drizzle-orm'
import * as onPg from 'drizzle-orm/node-postgres'
import { bigint, boolean, date, integer, jsonb, numeric, pgTable, text, timestamp } from 'drizzle-orm/pg-core'
import * as onPostgresJs from 'drizzle-orm/postgres-js'
import type { Isolation, Transaction } from 'pg-lockstep'
import { clientOf, drizzle, type DrizzleTransaction } from 'pg-lockstep/drizzle'
import * as postgresJs from 'pg-lockstep/drizzle-postgres-js'
import type pg from 'pg'
import type { Sql } from 'postgres'
import { type OrmPart, type OrmUnderTest, SAMPLE } from './ormUnderTest.ts'

const notes = pgTable('notes', { id: text('id').primaryKey() })
const counters = pgTable('orm_counters', { name: text('name').primaryKey(), value: integer('value').notNull() })
const samples = pgTable('orm_samples', {
  id: text('id').primaryKey(),
  big: bigint('big', { mode: 'bigint' }).notNull(),
  amount: numeric('amount').notNull(),
  numbers: integer('numbers').array().notNull(),
  texts: text('texts').array().notNull(),
  document: jsonb('document').notNull(),
  at: timestamp('at', { withTimezone: true, precision: 3 }).notNull(),
  day: date('day').notNull(),
  flag: boolean('flag'),
})

/** As its users declare it. */
export const schema = { notes, counters, samples }

type Schema = typeof schema

/** Of both drivers, what they have in common. */
type Database = DrizzleTransaction<Schema> | postgresJs.DrizzleTransaction<Schema>

function partOf(db: Database, client: () => object): OrmPart {
  // The two differ in the results of raw statements alone, which nothing here reads.
  const database = db as DrizzleTransaction<Schema>
  return {
    insertNote: (id) => database.insert(notes).values({ id }),
    async readCounter(name) {
      const [row] = await database.select().from(counters).where(eq(counters.name, name))
      return row?.value ?? NaN
    },
    writeCounter: (name, value) => database.update(counters).set({ value }).where(eq(counters.name, name)),
    raw: (statement) => database.execute(sql.raw(statement)),
    nested: (work) => database.transaction((inner) => work(partOf(inner, client))),
    writeSample: (id) =>
      database
        .insert(samples)
        .values({ id, ...SAMPLE, numbers: [...SAMPLE.numbers], texts: [...SAMPLE.texts] })
        .onConflictDoNothing(),
    readSample: (id) =>
      database.query.samples
        .findFirst({ where: eq(samples.id, sql.placeholder('id')) })
        .prepare('drizzle_sample')
        .execute({ id }),
    client,
  }
}

export const drizzleOnPg: OrmUnderTest = {
  name: 'Drizzle (node-postgres)',
  driver: 'pg',
  async open({ pool }) {
    const db = onPg.drizzle(pool as pg.Pool, { schema })
    return {
      inside: (tx: Transaction, work) => {
        const part = drizzle(tx, { schema })
        return work(partOf(part, () => clientOf(part)))
      },
      own: (isolationLevel: Isolation, work) =>
        db.transaction((part) => work(partOf(part, () => clientOf(part))), { isolationLevel }),
      close: async () => undefined,
    }
  },
}

export const drizzleOnPostgresJs: OrmUnderTest = {
  name: 'Drizzle (postgres-js)',
  driver: 'postgres.js',
  async open({ pool }) {
    const db = onPostgresJs.drizzle(pool as Sql, { schema })
    return {
      inside: (tx: Transaction, work) => {
        const part = postgresJs.drizzle(tx, { schema })
        return work(partOf(part, () => postgresJs.clientOf(part)))
      },
      own: (isolationLevel: Isolation, work) =>
        db.transaction((part) => work(partOf(part, () => postgresJs.clientOf(part))), { isolationLevel }),
      close: async () => undefined,
    }
  },
}
