import { loadOrm } from './load.ts'
import type { OrmDriver, OrmPart } from './orms.ts'

interface EntityManager {
  save(entity: unknown, row: object): Promise<unknown>
  insert(entity: unknown, row: object): Promise<unknown>
  transaction(work: (manager: EntityManager) => Promise<unknown>): Promise<unknown>
}

interface DataSource {
  readonly driver: object
  createQueryRunner(): { databaseConnection: unknown; readonly manager: EntityManager }
}

interface TypeormModule {
  DataSource: new (config: object) => DataSource & { buildMetadatas(): Promise<void> }
  EntitySchema: new (definition: object) => unknown
}

/** A query runner whose connection is the client. `save()` opens a transaction by itself where none is open. */
export const typeormOnPg: OrmDriver = {
  name: 'TypeORM',
  driver: 'pg',
  takes: 'client',
  async open(client) {
    loadOrm('reflect-metadata')
    const { DataSource, EntitySchema } = loadOrm<TypeormModule>('typeorm')
    const Note = new EntitySchema({
      name: 'Note',
      tableName: 'notes',
      columns: { id: { type: 'text', primary: true } },
    })
    const source = new DataSource({ type: 'postgres', entities: [Note] })
    await source.buildMetadatas()
    const runner = source.createQueryRunner()
    runner.databaseConnection = client
    const partOf = (manager: EntityManager): OrmPart => ({
      insert: (id) => manager.insert(Note, { id }),
      nested: (work) => manager.transaction((inner) => work(partOf(inner))),
    })
    const { nested } = partOf(runner.manager)
    return { insert: (id) => runner.manager.save(Note, { id }), transaction: nested }
  },
}
