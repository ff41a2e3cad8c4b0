import { loadOrm } from './load.ts'
import type { Orm, OrmDriver, OrmPart } from './orms.ts'

interface KyselyDatabase {
  insertInto(table: string): { values(row: object): Command }
  transaction(): { execute(work: (part: KyselyDatabase) => Promise<unknown>): Promise<unknown> }
}

interface Command<Answer = unknown> {
  execute(): Promise<Answer>
}

interface ControlledTransaction extends KyselyDatabase {
  savepoint(name: string): Command<ControlledTransaction>
  rollbackToSavepoint(name: string): Command
  releaseSavepoint(name: string): Command
  commit(): Command
  rollback(): Command
}

interface KyselyRoot extends KyselyDatabase {
  startTransaction(): Command<ControlledTransaction>
}

interface KyselyModule {
  Kysely: new (config: object) => KyselyRoot
  PostgresDialect: new (config: { pool: unknown }) => object
}

/** Kysely takes a pool, and a client from it for every query and every transaction. */
function open(pool: unknown): KyselyRoot {
  const { Kysely, PostgresDialect } = loadOrm<KyselyModule>('kysely')
  return new Kysely({ dialect: new PostgresDialect({ pool }) })
}

function insertInto(database: KyselyDatabase, id: string): Promise<unknown> {
  return database.insertInto('notes').values({ id }).execute()
}

function controlled(part: ControlledTransaction, depth: number): OrmPart {
  return {
    insert: (id) => insertInto(part, id),
    async nested(work) {
      const name = `kysely_${depth}`
      const inner = await part.savepoint(name).execute()
      try {
        await work(controlled(inner, depth + 1))
        await inner.releaseSavepoint(name).execute()
      } catch (error) {
        await inner.rollbackToSavepoint(name).execute()
        throw error
      }
    },
  }
}

export const kyselyOnPg: OrmDriver = {
  name: 'Kysely',
  driver: 'pg',
  takes: 'pool',
  async open(pool) {
    const database = open(pool)
    return {
      insert: (id) => insertInto(database, id),
      transaction: (work) =>
        database.transaction().execute((part) =>
          work({
            insert: (id) => insertInto(part, id),
            nested: () => Promise.reject(new Error('Kysely nests controlled transactions only')),
          }),
        ),
    }
  },
}

export const controlledKyselyOnPg: OrmDriver = {
  name: 'Kysely, controlled',
  driver: 'pg',
  takes: 'pool',
  async open(pool): Promise<Orm> {
    const database = open(pool)
    return {
      insert: (id) => insertInto(database, id),
      async transaction(work) {
        const part = await database.startTransaction().execute()
        try {
          await work(controlled(part, 1))
          await part.commit().execute()
        } catch (error) {
          await part.rollback().execute()
          throw error
        }
      },
    }
  },
}
