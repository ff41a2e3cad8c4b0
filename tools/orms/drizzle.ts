import { loadOrm } from './load.ts'
import type { Orm, OrmDriver, OrmPart } from './orms.ts'

interface DrizzleDatabase {
  insert(table: unknown): { values(row: object): PromiseLike<unknown> }
  transaction(work: (part: DrizzleDatabase) => Promise<unknown>): Promise<unknown>
}

interface DrizzleDriver {
  readonly drizzle: (client: unknown) => DrizzleDatabase
}

interface PgCore {
  readonly pgTable: (name: string, columns: object) => unknown
  readonly text: (name: string) => { primaryKey(): unknown }
}

function open(module: string, client: unknown): Orm {
  const { drizzle } = loadOrm<DrizzleDriver>(module)
  const { pgTable, text } = loadOrm<PgCore>('drizzle-orm/pg-core')
  const notes = pgTable('notes', { id: text('id').primaryKey() })
  const partOf = (database: DrizzleDatabase): OrmPart => ({
    insert: async (id) => database.insert(notes).values({ id }),
    nested: (work) => database.transaction((inner) => work(partOf(inner))),
  })
  const { insert, nested } = partOf(drizzle(client))
  return { insert, transaction: nested }
}

export const drizzleOnPg: OrmDriver = {
  name: 'Drizzle (node-postgres)',
  driver: 'pg',
  takes: 'client',
  open: async (client) => open('drizzle-orm/node-postgres', client),
}

export const drizzleOnPostgresJs: OrmDriver = {
  name: 'Drizzle (postgres-js)',
  driver: 'postgres.js',
  takes: 'pool',
  open: async (client) => open('drizzle-orm/postgres-js', client),
}
