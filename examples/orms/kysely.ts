/**
 * Payments from one account through Kysely.
 *
 * The idea: Lockstep opens the transaction and holds the account's lock before the first read. `kysely<Database>(tx)` is Kysely's own `Transaction`
 * in that transaction.
 * A coupon is used in a nested transaction, which fails alone. A deposit comes from code that
 * opens its transaction with Kysely: it joins with the lock, and enqueues its event.
 */
import { Kysely, PostgresDialect } from 'kysely'
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { clientOf, kysely } from 'pg-lockstep/kysely'

interface Database {
  kysely_accounts: { id: string; balance: number }
  kysely_coupons: { code: string }
}

/** Kysely passes the driver's error on as it is. */
function isDuplicate(error: unknown): boolean {
  return (error as { code?: string }).code === '23505'
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
    CREATE TABLE kysely_accounts (id text PRIMARY KEY, balance integer NOT NULL);
    CREATE TABLE kysely_coupons (code text PRIMARY KEY);
    INSERT INTO kysely_accounts VALUES ('alice', 100)`)
  const own = new Kysely<Database>({ dialect: new PostgresDialect({ pool }) })
  let [paid, refused, withCoupon] = [0, 0, 0]

  async function pay(id: string, amount: number): Promise<void> {
    const stream = { topic: 'payments', key: id }
    const outcome = await lockstep.transaction(
      { lock: key`Account:${id}`, isolation: 'serializable', streams: [stream] },
      async (tx) => {
        const db = kysely<Database>(tx)
        const accounts = db.selectFrom('kysely_accounts').where('id', '=', id)
        const account = await accounts.selectAll().executeTakeFirstOrThrow()
        if (account.balance < amount) return 'refused'
        const balance = account.balance - amount
        await db.updateTable('kysely_accounts').set({ balance }).where('id', '=', id).execute()
        const use = db.transaction().execute(async (inner) => {
          await inner.insertInto('kysely_coupons').values({ code: 'welcome' }).execute()
        })
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

  await own.transaction().execute(async (db) => {
    await lockstep.join(clientOf(db), { lock: key`Account:${'alice'}` })
    const deposit = db.updateTable('kysely_accounts').set(({ eb }) => ({ balance: eb('balance', '+', 50) }))
    await deposit.where('id', '=', 'alice').execute()
    await lockstep.outbox.enqueue(clientOf(db), { topic: 'payments', key: 'alice', payload: { amount: -50 } })
  })

  const row = await own.selectFrom('kysely_accounts').selectAll().where('id', '=', 'alice').executeTakeFirstOrThrow()
  const { balance } = row
  await lockstep.close()
  return { paid, refused, withCoupon, balance }
}
