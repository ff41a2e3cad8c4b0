import { loadOrm } from './load.ts'
import type { OrmDriver, OrmPart } from './orms.ts'

type KnexWork = (part: KnexDatabase) => Promise<unknown>

interface KnexDatabase {
  (table: string): { insert(row: object): PromiseLike<unknown> & { connection(client: unknown): PromiseLike<unknown> } }
  transaction(work: KnexWork, config?: { connection: unknown }): PromiseLike<unknown>
}

type KnexFactory = (config: { client: string }) => KnexDatabase

const partOf = (database: KnexDatabase): OrmPart => ({
  insert: async (id) => database('notes').insert({ id }),
  nested: async (work) => database.transaction((inner) => work(partOf(inner))),
})

export const knexOnPg: OrmDriver = {
  name: 'Knex',
  driver: 'pg',
  takes: 'client',
  async open(connection) {
    const knex = loadOrm<KnexFactory>('knex')({ client: 'pg' })
    return {
      insert: async (id) => knex('notes').insert({ id }).connection(connection),
      transaction: async (work) => knex.transaction((part) => work(partOf(part)), { connection }),
    }
  },
}
