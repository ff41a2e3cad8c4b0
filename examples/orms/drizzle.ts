/**
 * Payments from one account through Drizzle.
 *
 * The idea: Lockstep opens the transaction and holds the account's lock before the first read. `drizzle(tx, { schema })` is Drizzle's own transaction
 * object in that transaction.
 * A coupon is used in a nested transaction, which fails alone. A deposit comes from code that
 * opens its transaction with Drizzle: it joins with the lock, and enqueues its event.
 */
import { DrizzleQueryError, eq, sql } from 'drizzle-orm'
import { drizzle as drizzleOn } from 'drizzle-orm/node-postgres'
import { integer, pgTable, text } from 'drizzle-orm/pg-core'
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { clientOf, drizzle } from 'pg-lockstep/drizzle'

const accounts = pgTable('drizzle_accounts', { id: text('id').primaryKey(), balance: integer('balance').notNull() })
const coupons = pgTable('drizzle_coupons', { code: text('code').primaryKey() })
const schema = { accounts, coupons }

function isDuplicate(error: unknown): boolean {
  return error instanceof DrizzleQueryError && (error.cause as { code?: string }).code === '23505'
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
    CREATE TABLE drizzle_accounts (id text PRIMARY KEY, balance integer NOT NULL);
    CREATE TABLE drizzle_coupons (code text PRIMARY KEY);
    INSERT INTO drizzle_accounts VALUES ('alice', 100)`)
  const own = drizzleOn(pool, { schema })
  let [paid, refused, withCoupon] = [0, 0, 0]

  async function pay(id: string, amount: number): Promise<void> {
    const stream = { topic: 'payments', key: id }
    const outcome = await lockstep.transaction(
      { lock: key`Account:${id}`, isolation: 'serializable', streams: [stream] },
      async (tx) => {
        const db = drizzle(tx, { schema })
        const account = await db.query.accounts.findFirst({ where: eq(accounts.id, id) })
        if (account === undefined || account.balance < amount) return 'refused'
        const balance = account.balance - amount
        await db.update(accounts).set({ balance }).where(eq(accounts.id, id))
        const use = db.transaction(async (inner) => inner.insert(coupons).values({ code: 'welcome' }))
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

  await own.transaction(async (db) => {
    await lockstep.join(clientOf(db), { lock: key`Account:${'alice'}` })
    await db
      .update(accounts)
      .set({ balance: sql`${accounts.balance} + 50` })
      .where(eq(accounts.id, 'alice'))
    await lockstep.outbox.enqueue(clientOf(db), { topic: 'payments', key: 'alice', payload: { amount: -50 } })
  })

  const [row] = await own.select().from(accounts).where(eq(accounts.id, 'alice'))
  const balance = row?.balance ?? NaN
  await lockstep.close()
  return { paid, refused, withCoupon, balance }
}
