import { type Generated, Kysely, PostgresDialect, sql, type Transaction as KyselyTransaction } from 'kysely'
import { PostgresJSDialect } from 'kysely-postgres-js'
import type { Isolation } from 'pg-lockstep'
import { clientOf, kysely } from 'pg-lockstep/kysely'
import type pg from 'pg'
import type { Sql } from 'postgres'
import { type OpenOrm, type OrmPart, type OrmUnderTest, SAMPLE } from './ormUnderTest.ts'

/** As its users declare it. */
export interface Database {
  notes: { id: string }
  orm_counters: { name: string; value: number }
  orm_samples: {
    id: string
    big: string | bigint
    amount: string
    numbers: number[]
    texts: string[]
    document: unknown
    at: Date
    day: Date | string
    flag: Generated<boolean | null>
  }
}

type Db = KyselyTransaction<Database>

function partOf(db: Db, jsonOf: (document: unknown) => unknown): OrmPart {
  return {
    insertNote: (id) => db.insertInto('notes').values({ id }).execute(),
    async readCounter(name) {
      const row = await db.selectFrom('orm_counters').select('value').where('name', '=', name).executeTakeFirst()
      return row?.value ?? NaN
    },
    writeCounter: (name, value) => db.updateTable('orm_counters').set({ value }).where('name', '=', name).execute(),
    raw: (text) => sql.raw(text).execute(db),
    nested: (work) => db.transaction().execute((inner) => work(partOf(inner, jsonOf))),
    writeSample: (id) =>
      db
        .insertInto('orm_samples')
        .values({
          id,
          ...SAMPLE,
          big: String(SAMPLE.big),
          numbers: [...SAMPLE.numbers],
          texts: [...SAMPLE.texts],
          document: jsonOf(SAMPLE.document),
        })
        .onConflict((conflict) => conflict.doNothing())
        .execute(),
    readSample: (id) => db.selectFrom('orm_samples').selectAll().where('id', '=', id).executeTakeFirst(),
    client: () => clientOf(db),
  }
}

function openOn(db: Kysely<Database>, jsonOf: (document: unknown) => unknown): OpenOrm {
  return {
    inside: (tx, work) => work(partOf(kysely<Database>(tx), jsonOf)),
    own: (isolation: Isolation, work) =>
      db
        .transaction()
        .setIsolationLevel(isolation)
        .execute((trx) => work(partOf(trx, jsonOf))),
    close: async () => undefined,
  }
}

export const kyselyOnPg: OrmUnderTest = {
  name: 'Kysely (pg)',
  driver: 'pg',
  open: async ({ pool }) =>
    openOn(new Kysely<Database>({ dialect: new PostgresDialect({ pool: pool as pg.Pool }) }), (document) => document),
}

/** postgres.js writes JSON by itself where the server says that a parameter is of that type. */
export const kyselyOnPostgresJs: OrmUnderTest = {
  name: 'Kysely (postgres.js)',
  driver: 'postgres.js',
  joins: false,
  open: async ({ pool }) =>
    openOn(new Kysely<Database>({ dialect: new PostgresJSDialect({ postgres: pool as Sql }) }), (document) => document),
}
