/**
 * Payments from one account through TypeORM.
 *
 * The idea: Lockstep opens the transaction and holds the account's lock before the first read. `typeorm(tx, dataSource)` is TypeORM's own entity manager in that
 * transaction.
 * A coupon is used in a nested transaction, which fails alone. A deposit comes from code that
 * opens its transaction with TypeORM: it joins with the lock, and enqueues its event.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { clientOf, typeorm } from 'pg-lockstep/typeorm'
import { DataSource, EntitySchema, QueryFailedError } from 'typeorm'

const Account = new EntitySchema<{ id: string; balance: number }>({
  name: 'Account',
  tableName: 'typeorm_accounts',
  columns: { id: { type: 'text', primary: true }, balance: { type: 'integer' } },
})

const Coupon = new EntitySchema<{ code: string }>({
  name: 'Coupon',
  tableName: 'typeorm_coupons',
  columns: { code: { type: 'text', primary: true } },
})

function isDuplicate(error: unknown): boolean {
  return error instanceof QueryFailedError && (error.driverError as { code?: string }).code === '23505'
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
    CREATE TABLE typeorm_accounts (id text PRIMARY KEY, balance integer NOT NULL);
    CREATE TABLE typeorm_coupons (code text PRIMARY KEY);
    INSERT INTO typeorm_accounts VALUES ('alice', 100)`)
  const dataSource = new DataSource({ type: 'postgres', url, entities: [Account, Coupon] })
  await dataSource.initialize()
  let [paid, refused, withCoupon] = [0, 0, 0]

  async function pay(id: string, amount: number): Promise<void> {
    const stream = { topic: 'payments', key: id }
    const outcome = await lockstep.transaction(
      { lock: key`Account:${id}`, isolation: 'serializable', streams: [stream] },
      async (tx) => {
        const manager = typeorm(tx, dataSource)
        const account = await manager.findOneByOrFail(Account, { id })
        if (account.balance < amount) return 'refused'
        await manager.save(Account, { id, balance: account.balance - amount })
        const use = manager.transaction((inner) => inner.insert(Coupon, { code: 'welcome' }))
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

  await dataSource.transaction('READ COMMITTED', async (manager) => {
    await lockstep.join(clientOf(manager), { lock: key`Account:${'alice'}` })
    await manager.increment(Account, { id: 'alice' }, 'balance', 50)
    await lockstep.outbox.enqueue(clientOf(manager), { topic: 'payments', key: 'alice', payload: { amount: -50 } })
  })

  const { balance } = await dataSource.manager.findOneByOrFail(Account, { id: 'alice' })
  await dataSource.destroy()
  await lockstep.close()
  return { paid, refused, withCoupon, balance }
}
