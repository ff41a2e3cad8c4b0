/**
 * Payments from one account through Prisma.
 *
 * The idea: Lockstep opens the transaction and holds the account's lock before the first read. `prisma(tx, client)` is Prisma's own transaction
 * client in that transaction.
 * A coupon is used in a nested transaction, which fails alone. A deposit comes from code that
 * opens its transaction with Prisma: it joins with the lock, and enqueues its event.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { clientOf, prisma, prismaAdapter } from 'pg-lockstep/prisma'
import { Prisma, PrismaClient } from './prisma-client.ts'

function isDuplicate(error: unknown): boolean {
  return error instanceof Prisma.PrismaClientKnownRequestError && error.code === 'P2002'
}

export interface PaymentsResult {
  readonly paid: number
  readonly refused: number
  /** Payments that got the coupon: it can be used once. */
  readonly withCoupon: number
  readonly balance: number
}

export async function run(pool: pg.Pool): Promise<PaymentsResult> {
  const lockstep = new Lockstep<{ payments: { amount: number } }, pg.Pool>(pool)
  await lockstep.migrate()
  await pool.query(`
    CREATE TABLE prisma_accounts (id text PRIMARY KEY, balance integer NOT NULL);
    CREATE TABLE prisma_coupons (code text PRIMARY KEY);
    INSERT INTO prisma_accounts VALUES ('alice', 100)`)
  const client = new PrismaClient({ adapter: prismaAdapter(pool) })
  let [paid, refused, withCoupon] = [0, 0, 0]

  async function pay(id: string, amount: number): Promise<void> {
    const stream = { topic: 'payments', key: id }
    const outcome = await lockstep.transaction(
      { lock: key`Account:${id}`, isolation: 'serializable', streams: [stream] },
      async (tx) => {
        const db = await prisma(tx, client)
        const account = await db.account.findUniqueOrThrow({ where: { id } })
        if (account.balance < amount) return 'refused'
        await db.account.update({ where: { id }, data: { balance: account.balance - amount } })
        const use = db.$transaction((inner) => inner.coupon.create({ data: { code: 'welcome' } }))
        const coupon = await use.then(
          () => true,
          (error: unknown) => {
            if (isDuplicate(error)) return false
            throw error
          },
        )
        await tx.enqueue({ topic: 'payments', key: id, payload: { amount } })
        return coupon ? 'paid with coupon' : 'paid'
      },
    )
    // Counted after COMMIT: the function above can run again.
    if (outcome === 'refused') refused++
    else paid++
    if (outcome === 'paid with coupon') withCoupon++
  }

  await Promise.all(Array.from({ length: 15 }, () => pay('alice', 10)))

  await client.$transaction(async (db) => {
    const connection = await clientOf(db)
    await lockstep.join(connection, { lock: key`Account:${'alice'}` })
    await db.account.update({ where: { id: 'alice' }, data: { balance: { increment: 50 } } })
    await lockstep.outbox.enqueue(connection, { topic: 'payments', key: 'alice', payload: { amount: -50 } })
  })

  const { balance } = await client.account.findUniqueOrThrow({ where: { id: 'alice' } })
  await client.$disconnect()
  await lockstep.close()
  return { paid, refused, withCoupon, balance }
}
