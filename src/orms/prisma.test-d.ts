import type pg from 'pg'
import { describe, expectTypeOf, test } from 'vitest'
import type { Prisma, PrismaClient } from '../../tools/orms/prisma/generated/client.ts'
import type { Lockstep, Transaction } from '../index.ts'
import { clientOf, prisma, prismaAdapter, type PrismaTransaction } from './prisma.ts'

declare const client: PrismaClient
declare const tx: Transaction
declare const lockstep: Lockstep
declare const pool: pg.Pool

describe('prisma()', () => {
  test('is the transaction client of the generated client', async () => {
    const db = await prisma(tx, client)
    expectTypeOf(db).toEqualTypeOf<Prisma.TransactionClient>()
    expectTypeOf<PrismaTransaction<PrismaClient>>().toEqualTypeOf<Prisma.TransactionClient>()
  })

  test('has the models, with their types', async () => {
    const db = await prisma(tx, client)
    const sample = await db.sample.findUniqueOrThrow({ where: { id: 'a' } })
    expectTypeOf(sample.big).toEqualTypeOf<bigint>()
    expectTypeOf(sample.amount).toEqualTypeOf<Prisma.Decimal>()
    expectTypeOf(sample.numbers).toEqualTypeOf<number[]>()
    expectTypeOf(sample.document).toEqualTypeOf<Prisma.JsonValue>()
    expectTypeOf(sample.at).toEqualTypeOf<Date>()
    expectTypeOf(sample.flag).toEqualTypeOf<boolean | null>()
    const selected = await db.counter.findFirst({ select: { value: true } })
    expectTypeOf(selected).toEqualTypeOf<{ value: number } | null>()
    // @ts-expect-error no such model
    void db.account1
    // @ts-expect-error no such column
    await db.note.findUnique({ where: { name: 'a' } })
    // @ts-expect-error another type
    await db.counter.create({ data: { name: 'a', value: 'one' } })
  })

  test('has nested transactions of the same type', async () => {
    const db = await prisma(tx, client)
    const value = await db.$transaction(async (inner) => (await inner.counter.findFirstOrThrow()).value)
    expectTypeOf(value).toEqualTypeOf<number>()
    // @ts-expect-error the connection is not the transaction's to end
    await db.$disconnect()
  })

  test('keeps what an extension added', async () => {
    const extended = client.$extends({
      model: { counter: { total: async (): Promise<number> => 1 } },
      result: { note: { title: { needs: { id: true }, compute: ({ id }): string => `note ${id}` } } },
    })
    const db = await prisma(tx, extended)
    expectTypeOf(await db.counter.total()).toEqualTypeOf<number>()
    expectTypeOf((await db.note.findFirstOrThrow()).title).toEqualTypeOf<string>()
  })

  test('takes a client of Prisma alone', async () => {
    // @ts-expect-error a pool
    await prisma(tx, pool)
  })
})

test('prismaAdapter() is what a Prisma client takes', () => {
  type Options = ConstructorParameters<typeof PrismaClient>[0]
  expectTypeOf({ adapter: prismaAdapter(pool) }).toExtend<Options>()
  prismaAdapter(pool, { schema: 'shop' })
  // @ts-expect-error no such option
  prismaAdapter(pool, { schemas: 'shop' })
})

test('clientOf() takes the transaction of Prisma', async () => {
  await client.$transaction(async (db) => {
    await lockstep.join(await clientOf(db), { lock: 'Account:1' })
  })
})
