import type pg from 'pg'
import { clientOf, prisma, prismaAdapter, type PrismaTransaction } from 'pg-lockstep/prisma'
import { PrismaClient } from '../prisma/generated/client.ts'
import { type OrmPart, type OrmUnderTest, SAMPLE } from './ormUnderTest.ts'

type Db = PrismaTransaction<PrismaClient>

function partOf(db: Db): OrmPart {
  return {
    insertNote: (id) => db.note.create({ data: { id } }),
    async readCounter(name) {
      return (await db.counter.findUniqueOrThrow({ where: { name } })).value
    },
    writeCounter: (name, value) => db.counter.update({ where: { name }, data: { value } }),
    raw: (text) => db.$executeRawUnsafe(text),
    nested: (work) => db.$transaction((inner) => work(partOf(inner))),
    writeSample: (id) => {
      const { numbers, texts, day, document, ...rest } = SAMPLE
      const values = { ...rest, numbers: [...numbers], texts: [...texts], day: new Date(day) }
      const data = { id, ...values, document: structuredClone(document) as object }
      return db.sample.upsert({ where: { id }, create: data, update: data })
    },
    readSample: async (id) => (await db.sample.findUnique({ where: { id } })) ?? undefined,
    client: () => clientOf(db),
  }
}

export const prismaOnPg: OrmUnderTest = {
  name: 'Prisma',
  driver: 'pg',
  async open({ pool }) {
    const client = new PrismaClient({ adapter: prismaAdapter(pool as pg.Pool) })
    return {
      inside: async (tx, work) => work(partOf(await prisma(tx, client))),
      own: (isolation, work) =>
        client.$transaction((db) => work(partOf(db)), {
          isolationLevel: LEVELS[isolation],
          maxWait: 60_000,
          timeout: 60_000,
        }),
      close: () => client.$disconnect(),
    }
  },
}

const LEVELS = {
  'read committed': 'ReadCommitted',
  'repeatable read': 'RepeatableRead',
  serializable: 'Serializable',
} as const
