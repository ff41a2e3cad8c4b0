import { clientOf, typeorm } from 'pg-lockstep/typeorm'
import { DataSource, type EntityManager, EntitySchema } from 'typeorm'
import { type OrmPart, type OrmUnderTest, SAMPLE } from './ormUnderTest.ts'

const Note = new EntitySchema<{ id: string }>({
  name: 'Note',
  tableName: 'notes',
  columns: { id: { type: 'text', primary: true } },
})

const Counter = new EntitySchema<{ name: string; value: number }>({
  name: 'Counter',
  tableName: 'orm_counters',
  columns: { name: { type: 'text', primary: true }, value: { type: 'integer' } },
})

interface SampleRow {
  id: string
  big: string
  amount: string
  numbers: number[]
  texts: string[]
  document: object
  at: Date
  day: string
  flag: boolean | null
}

const Sample = new EntitySchema<SampleRow>({
  name: 'Sample',
  tableName: 'orm_samples',
  columns: {
    id: { type: 'text', primary: true },
    big: { type: 'bigint' },
    amount: { type: 'numeric' },
    numbers: { type: 'integer', array: true },
    texts: { type: 'text', array: true },
    document: { type: 'jsonb' },
    at: { type: 'timestamptz', precision: 3 },
    day: { type: 'date' },
    flag: { type: 'boolean', nullable: true },
  },
})

function partOf(manager: EntityManager): OrmPart {
  return {
    insertNote: (id) => manager.insert(Note, { id }),
    async readCounter(name) {
      return (await manager.findOneByOrFail(Counter, { name })).value
    },
    // Loads the row, compares, and writes what differs: in a transaction of its own, if none is open.
    writeCounter: (name, value) => manager.save(Counter, { name, value }),
    raw: (text) => manager.query(text),
    nested: (work) => manager.transaction((inner) => work(partOf(inner))),
    writeSample: (id) => {
      const { big, numbers, texts, ...rest } = SAMPLE
      return manager.save(Sample, { id, big: String(big), numbers: [...numbers], texts: [...texts], ...rest })
    },
    readSample: async (id) => (await manager.findOneBy(Sample, { id })) ?? undefined,
    client: () => clientOf(manager),
  }
}

export const typeormOnPg: OrmUnderTest = {
  name: 'TypeORM',
  driver: 'pg',
  async open({ url }) {
    const dataSource = new DataSource({ type: 'postgres', url, entities: [Note, Counter, Sample], extra: { max: 4 } })
    await dataSource.initialize()
    return {
      inside: (tx, work) => work(partOf(typeorm(tx, dataSource))),
      own: (isolation, work) => dataSource.transaction(LEVELS[isolation], (manager) => work(partOf(manager))),
      close: () => dataSource.destroy(),
    }
  },
}

const LEVELS = {
  'read committed': 'READ COMMITTED',
  'repeatable read': 'REPEATABLE READ',
  serializable: 'SERIALIZABLE',
} as const
