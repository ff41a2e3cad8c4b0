/**
 * Payments from one account through Knex.
 *
 * The idea: Lockstep opens the transaction and holds the account's lock before the first read. `knex(tx, instance)` is Knex's own transaction
 * in that transaction.
 * A coupon is used in a nested transaction, which fails alone. A deposit comes from code that
 * opens its transaction with Knex: it joins with the lock, and enqueues its event.
 */
import knexFactory from 'knex'
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { clientOf, knex } from 'pg-lockstep/knex'

interface Account {
  id: string
  balance: number
}

/** Knex passes the driver's error on as it is. */
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

export async function run(pool: pg.Pool, url: string): Promise<PaymentsResult> {
  const lockstep = new Lockstep<{ payments: { amount: number } }, pg.Pool>(pool)
  await lockstep.migrate()
  await pool.query(`
    CREATE TABLE knex_accounts (id text PRIMARY KEY, balance integer NOT NULL);
    CREATE TABLE knex_coupons (code text PRIMARY KEY);
    INSERT INTO knex_accounts VALUES ('alice', 100)`)
  const instance = knexFactory({ client: 'pg', connection: url })
  let [paid, refused, withCoupon] = [0, 0, 0]

  async function pay(id: string, amount: number): Promise<void> {
    const stream = { topic: 'payments', key: id }
    const outcome = await lockstep.transaction(
      { lock: key`Account:${id}`, isolation: 'serializable', streams: [stream] },
      async (tx) => {
        const trx = await knex(tx, instance)
        const account = await trx<Account>('knex_accounts').where({ id }).first()
        if (account === undefined || account.balance < amount) return 'refused'
        await trx<Account>('knex_accounts')
          .where({ id })
          .update({ balance: account.balance - amount })
        const use = trx.transaction(async (inner) => {
          await inner('knex_coupons').insert({ code: 'welcome' })
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

  await instance.transaction(async (trx) => {
    const client = await clientOf(trx)
    await lockstep.join(client, { lock: key`Account:${'alice'}` })
    await trx<Account>('knex_accounts').where({ id: 'alice' }).increment('balance', 50)
    await lockstep.outbox.enqueue(client, { topic: 'payments', key: 'alice', payload: { amount: -50 } })
  })

  const row = await instance<Account>('knex_accounts').where({ id: 'alice' }).first()
  const balance = row?.balance ?? NaN
  await instance.destroy()
  await lockstep.close()
  return { paid, refused, withCoupon, balance }
}
