import { PrismaPg } from '@prisma/adapter-pg'
import type pg from 'pg'
import { describe, expect, test } from 'vitest'
import { PrismaClient } from '../../tools/orms/prisma/generated/client.ts'
import { prismaOnPg } from '../../tools/orms/underTest/prisma.ts'
import { failureOf, pidOf, signal, testBench } from '../../tools/server/testing/workbench.ts'
import {
  DriverUnsupportedError,
  JoinRefusedError,
  type Lockstep,
  type Transaction,
  TransactionControlError,
  TransactionEndedError,
} from '../index.ts'
import { findCause } from '../postgres/index.ts'
import { onEndOf } from '../transactions/index.ts'
import { ormConformance } from './orms.conformance.ts'
import { clientOf, prisma, prismaAdapter } from './prisma.ts'

const bench = await testBench()

ormConformance(bench, prismaOnPg)

/** A Lockstep and a Prisma client on one pool. */
function open(options: { readonly ambient?: boolean } = {}): { lockstep: Lockstep; client: PrismaClient } {
  const { lockstep, pool } = bench.open('pg')
  const ofClient = options.ambient === true ? lockstep.pool({ ambient: true }) : pool
  const client = new PrismaClient({ adapter: prismaAdapter(ofClient as pg.Pool) })
  bench.cleanUp(() => client.$disconnect())
  return { lockstep, client }
}

describe('two transactions at once', () => {
  const ROUNDS = 20

  /**
   * Each writes a row of its own and then, in one and the same tick, both look for both rows. Neither is committed: each can see its own
   * alone. The answer is what each saw.
   */
  async function lookForBoth(
    lockstep: Lockstep,
    round: number,
    find: (tx: Transaction) => Promise<(id: string) => Promise<object | null>>,
  ): Promise<boolean[][]> {
    const written = [signal(), signal()] as const
    const looked = [signal(), signal()] as const
    const look = signal()
    const ids = [`a${round}`, `b${round}`] as const
    const run = (mine: 0 | 1): Promise<boolean[]> =>
      lockstep.transaction({ lock: `Order:${mine}` }, async (tx) => {
        const findNote = await find(tx)
        await tx.query('INSERT INTO notes VALUES ($1)', [ids[mine]])
        written[mine].give()
        await look.given
        const found = await Promise.all(ids.map((id) => findNote(id)))
        looked[mine].give()
        // Otherwise the other could see what this one has committed.
        await Promise.all(looked.map((each) => each.given))
        return found.map((row) => row !== null)
      })
    const looking = [run(0), run(1)]
    await Promise.all(written.map((each) => each.given))
    look.give()
    return Promise.all(looking)
  }

  const OWN = [
    [true, false],
    [false, true],
  ]

  test('never mix, though Prisma collects the queries of one tick', async () => {
    const { lockstep, client } = open()
    for (let round = 0; round < ROUNDS; round++) {
      const seen = await lookForBoth(lockstep, round, async (tx) => {
        const db = await prisma(tx, client)
        const [row] = await db.$queryRaw<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`
        expect(row?.pid).toBe(await pidOf(tx))
        return (id) => db.note.findUnique({ where: { id } })
      })
      expect(seen).toEqual(OWN)
    }
  })

  test('control: on an ambient pool, Prisma looks for the rows of both in the transaction of one', async () => {
    const { lockstep, client } = open({ ambient: true })
    const seen = await lookForBoth(lockstep, 0, async () => (id) => client.note.findUnique({ where: { id } }))
    expect(seen).not.toEqual(OWN)
  })
})

test('gives the same object to all that ask in one transaction', async () => {
  const { lockstep, client } = open()
  await lockstep.transaction({}, async (tx) => {
    const [one, other] = await Promise.all([prisma(tx, client), prisma(tx, client)])
    expect(one).toBe(other)
  })
})

test('can be used with an extended client', async () => {
  const { lockstep, client } = open()
  const extended = client.$extends({
    result: { note: { title: { needs: { id: true }, compute: ({ id }) => `note ${id}` } } },
  })
  await lockstep.transaction({}, async (tx) => {
    const db = await prisma(tx, extended)
    await db.note.create({ data: { id: 'one' } })
    expect(await db.note.findFirstOrThrow()).toMatchObject({ title: 'note one' })
    await expect(
      db.$transaction(async (inner) => {
        expect(await inner.note.findFirstOrThrow()).toMatchObject({ title: 'note one' })
        throw new Error('inner')
      }),
    ).rejects.toThrow('inner')
  })
  expect(await bench.notes()).toEqual(['one'])
})

test('runs the calls of an array in the transaction', async () => {
  const { lockstep, client } = open()
  const failed = lockstep.transaction({}, async (tx) => {
    const db = await prisma(tx, client)
    await db.$transaction(['one', 'two'].map((id) => db.note.create({ data: { id } })))
    expect(await db.note.count()).toBe(2)
    expect(await bench.notes()).toEqual([])
    throw new Error('outer')
  })
  await expect(failed).rejects.toThrow('outer')
  expect(await bench.notes()).toEqual([])
})

test('keeps the isolation of the transaction, whatever the client has for its own', async () => {
  const { lockstep, pool } = bench.open('pg')
  const client = new PrismaClient({
    adapter: prismaAdapter(pool as pg.Pool),
    transactionOptions: { isolationLevel: 'RepeatableRead', timeout: 1 },
  })
  bench.cleanUp(() => client.$disconnect())
  await lockstep.transaction({ isolation: 'serializable' }, async (tx) => {
    const db = await prisma(tx, client)
    const [row] = await db.$queryRaw<
      object[]
    >`SELECT current_setting('transaction_isolation') AS level, pg_sleep(0.05)::text`
    expect(row).toMatchObject({ level: 'serializable' })
  })
})

test('refuses to end the transaction', async () => {
  const { lockstep, client } = open()
  await lockstep.transaction({}, async (tx) => {
    const db = await prisma(tx, client)
    for (const text of ['COMMIT', 'ROLLBACK', 'COMMIT AND CHAIN']) {
      const error = await failureOf(db.$executeRawUnsafe(text))
      expect(findCause(error, (each) => each instanceof TransactionControlError)).toBeDefined()
    }
    await db.note.create({ data: { id: 'one' } })
  })
  expect(await bench.notes()).toEqual(['one'])
})

const LOCK_WAITS = `SELECT FROM pg_locks WHERE NOT granted AND relation = 'notes'::regclass`

test('refuses the second statement of a call when the transaction has ended since the first', async () => {
  const { lockstep, client } = open()
  const blocker = await (bench.open('pg').pool as pg.Pool).connect()
  try {
    await blocker.query('BEGIN')
    await blocker.query('LOCK TABLE notes')
    let upsert: Promise<unknown> | undefined
    await lockstep.transaction({}, async (tx) => {
      const db = await prisma(tx, client)
      // It looks for the row first. Nothing awaits it.
      upsert = failureOf(db.note.upsert({ where: { id: 'one' }, create: { id: 'one' }, update: {} }))
      await expect.poll(async () => (await blocker.query(LOCK_WAITS)).rowCount).toBe(1)
      onEndOf(tx, () => void blocker.query('ROLLBACK'))
    })
    expect(findCause(await upsert, (each) => each instanceof TransactionEndedError)).toBeDefined()
  } finally {
    blocker.release()
  }
  expect(await bench.notes()).toEqual([])
})

test('refuses a client with another adapter, before anything is written', async () => {
  const { lockstep } = bench.open('pg')
  const client = new PrismaClient({ adapter: new PrismaPg({ connectionString: bench.url, max: 1 }) })
  bench.cleanUp(() => client.$disconnect())
  await lockstep.transaction({}, async (tx) => {
    expect(await failureOf(prisma(tx, client))).toBeInstanceOf(DriverUnsupportedError)
  })
  await client.$transaction(async (db) => {
    expect(await failureOf(clientOf(db))).toBeInstanceOf(DriverUnsupportedError)
  })
})

test('refuses a transaction whose end it cannot know', async () => {
  const { lockstep, client } = open()
  const { pool } = bench.open('pg')
  const connection = await (pool as pg.Pool).connect()
  try {
    await connection.query('BEGIN')
    const tx = await lockstep.join(connection)
    for (const call of [prisma(tx, client), prisma(tx, client)])
      expect(await failureOf(call)).toBeInstanceOf(JoinRefusedError)
    await connection.query('ROLLBACK')
  } finally {
    connection.release()
  }
})

test('refuses a Lockstep on postgres.js', async () => {
  const { client } = open()
  const { lockstep } = bench.open('postgres.js')
  await lockstep.transaction({}, async (tx) => {
    expect(await failureOf(prisma(tx, client))).toBeInstanceOf(DriverUnsupportedError)
  })
})
