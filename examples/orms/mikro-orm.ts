/**
 * Payments from one account through MikroORM.
 *
 * The idea: Lockstep opens the transaction and holds the account's lock before the first read. `mikroOrm(tx, orm)` is a fork of MikroORM's entity
 * manager in that transaction.
 * A coupon is used in a nested transaction, which fails alone. A deposit comes from code that
 * opens its transaction with MikroORM: it joins with the lock, and enqueues its event.
 */
import { EntitySchema, IsolationLevel, MikroORM, UniqueConstraintViolationException } from '@mikro-orm/postgresql'
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { clientOf, mikroOrm } from 'pg-lockstep/mikro-orm'

const Account = new EntitySchema<{ id: string; balance: number }>({
  name: 'Account',
  tableName: 'mikro_accounts',
  properties: { id: { type: 'text', primary: true }, balance: { type: 'integer' } },
})

const Coupon = new EntitySchema<{ code: string }>({
  name: 'Coupon',
  tableName: 'mikro_coupons',
  properties: { code: { type: 'text', primary: true } },
})

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
    CREATE TABLE mikro_accounts (id text PRIMARY KEY, balance integer NOT NULL);
    CREATE TABLE mikro_coupons (code text PRIMARY KEY);
    INSERT INTO mikro_accounts VALUES ('alice', 100)`)
  const orm = await MikroORM.init({ clientUrl: url, entities: [Account, Coupon] })
  let [paid, refused, withCoupon] = [0, 0, 0]

  async function pay(id: string, amount: number): Promise<void> {
    const stream = { topic: 'payments', key: id }
    const outcome = await lockstep.transaction(
      { lock: key`Account:${id}`, isolation: 'serializable', streams: [stream] },
      async (tx) => {
        const em = mikroOrm(tx, orm)
        const account = await em.findOneOrFail(Account, { id })
        if (account.balance < amount) return 'refused'
        account.balance -= amount
        const use = em.transactional(async (inner) => {
          inner.create(Coupon, { code: 'welcome' })
          await inner.flush()
        })
        const coupon = await use.then(
          () => true,
          (error: unknown) => {
            if (error instanceof UniqueConstraintViolationException) return false
            throw error
          },
        )
        // Nothing else writes what has changed.
        await em.flush()
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

  const deposit = orm.em.fork().transactional(
    async (em) => {
      const client = await clientOf(em)
      await lockstep.join(client, { lock: key`Account:${'alice'}` })
      const account = await em.findOneOrFail(Account, { id: 'alice' })
      account.balance += 50
      await lockstep.outbox.enqueue(client, { topic: 'payments', key: 'alice', payload: { amount: -50 } })
    },
    { isolationLevel: IsolationLevel.READ_COMMITTED },
  )
  await deposit

  const { balance } = await orm.em.fork().findOneOrFail(Account, { id: 'alice' })
  await orm.close()
  await lockstep.close()
  return { paid, refused, withCoupon, balance }
}
