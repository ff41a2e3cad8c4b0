import { ArrayType, type EntityManager, EntitySchema, IsolationLevel, MikroORM } from '@mikro-orm/postgresql'
import type { Isolation } from 'pg-lockstep'
import { clientOf, mikroOrm } from 'pg-lockstep/mikro-orm'
import { type OrmPart, type OrmUnderTest, SAMPLE } from './ormUnderTest.ts'

interface NoteRow {
  id: string
}

interface CounterRow {
  name: string
  value: number
}

interface SampleRow {
  id: string
  big: bigint
  amount: string
  numbers: number[]
  texts: string[]
  document: object
  at: Date
  day: string
  flag?: boolean | null
}

const Note = new EntitySchema<NoteRow>({
  name: 'Note',
  tableName: 'notes',
  properties: { id: { type: 'text', primary: true } },
})

const Counter = new EntitySchema<CounterRow>({
  name: 'Counter',
  tableName: 'orm_counters',
  properties: { name: { type: 'text', primary: true }, value: { type: 'integer' } },
})

const Sample = new EntitySchema<SampleRow>({
  name: 'Sample',
  tableName: 'orm_samples',
  properties: {
    id: { type: 'text', primary: true },
    big: { type: 'bigint' },
    amount: { type: 'decimal' },
    numbers: { type: new ArrayType(Number), columnType: 'integer[]' },
    texts: { type: 'array' },
    document: { type: 'json' },
    at: { type: 'datetime', length: 3 },
    day: { type: 'date' },
    flag: { type: 'boolean', nullable: true },
  },
})

function partOf(em: EntityManager): OrmPart {
  return {
    insertNote: (id) => em.insert(Note, { id }),
    async readCounter(name) {
      return (await em.findOneOrFail(Counter, { name }, { refresh: true })).value
    },
    async writeCounter(name, value) {
      const counter = await em.findOneOrFail(Counter, { name })
      counter.value = value
      await em.flush()
    },
    raw: (text) => em.execute(text),
    nested: (work) => em.transactional((inner) => work(partOf(inner))),
    writeSample: (id) => {
      const { numbers, texts, ...rest } = SAMPLE
      return em.upsert(Sample, { id, ...rest, numbers: [...numbers], texts: [...texts] })
    },
    readSample: async (id) => {
      const found = await em.findOne(Sample, { id }, { refresh: true })
      return found === null ? undefined : { ...found }
    },
    client: () => clientOf(em),
  }
}

export const mikroOrmOnPg: OrmUnderTest = {
  name: 'MikroORM',
  driver: 'pg',
  async open({ url }) {
    const orm = await MikroORM.init({
      clientUrl: url,
      entities: [Note, Counter, Sample],
      pool: { min: 0, max: 4 },
      discovery: { warnWhenNoEntities: false },
    })
    return {
      inside: (tx, work) => work(partOf(mikroOrm(tx, orm))),
      own: (isolation, work) =>
        orm.em.fork().transactional((em) => work(partOf(em)), { isolationLevel: LEVELS[isolation] }),
      close: () => orm.close(),
    }
  },
}

const LEVELS: Readonly<Record<Isolation, IsolationLevel>> = {
  'read committed': IsolationLevel.READ_COMMITTED,
  'repeatable read': IsolationLevel.REPEATABLE_READ,
  serializable: IsolationLevel.SERIALIZABLE,
}
