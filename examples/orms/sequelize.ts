/**
 * Payments from one account through Sequelize.
 *
 * The idea: Lockstep opens the transaction and holds the account's lock before the first read. `sequelize(tx, instance)` is the transaction that
 * is passed to every call.
 * A coupon is used in a nested transaction, which fails alone. A deposit comes from code that
 * opens its transaction with Sequelize: it joins with the lock, and enqueues its event.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { clientOf, sequelize } from 'pg-lockstep/sequelize'
import {
  type CreationAttributes,
  DataTypes,
  type InferAttributes,
  type InferCreationAttributes,
  Model,
  Sequelize,
  Transaction,
  UniqueConstraintError,
} from 'sequelize'

class Account extends Model<InferAttributes<Account>, InferCreationAttributes<Account>> {
  declare id: string
  declare balance: number
}

class Coupon extends Model<InferAttributes<Coupon>, InferCreationAttributes<Coupon>> {
  declare code: string
}

const WELCOME: CreationAttributes<Coupon> = { code: 'welcome' }

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
    CREATE TABLE sequelize_accounts (id text PRIMARY KEY, balance integer NOT NULL);
    CREATE TABLE sequelize_coupons (code text PRIMARY KEY);
    INSERT INTO sequelize_accounts VALUES ('alice', 100)`)
  const instance = new Sequelize(url, { dialect: 'postgres', logging: false })
  const options = { sequelize: instance, timestamps: false }
  Account.init(
    { id: { type: DataTypes.TEXT, primaryKey: true }, balance: DataTypes.INTEGER },
    { ...options, tableName: 'sequelize_accounts' },
  )
  Coupon.init({ code: { type: DataTypes.TEXT, primaryKey: true } }, { ...options, tableName: 'sequelize_coupons' })
  let [paid, refused, withCoupon] = [0, 0, 0]

  async function pay(id: string, amount: number): Promise<void> {
    const stream = { topic: 'payments', key: id }
    const outcome = await lockstep.transaction(
      { lock: key`Account:${id}`, isolation: 'serializable', streams: [stream] },
      async (tx) => {
        const transaction = sequelize(tx, instance)
        const account = await Account.findByPk(id, { transaction, rejectOnEmpty: true })
        if (account.balance < amount) return 'refused'
        await account.update({ balance: account.balance - amount }, { transaction })
        const use = instance.transaction({ transaction }, (inner) => Coupon.create(WELCOME, { transaction: inner }))
        const coupon = await use.then(
          () => true,
          (error: unknown) => {
            if (error instanceof UniqueConstraintError) return false
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

  const { READ_COMMITTED } = Transaction.ISOLATION_LEVELS
  await instance.transaction({ isolationLevel: READ_COMMITTED }, async (transaction) => {
    const client = clientOf(transaction)
    await lockstep.join(client, { lock: key`Account:${'alice'}` })
    await Account.increment('balance', { by: 50, where: { id: 'alice' }, transaction })
    await lockstep.outbox.enqueue(client, { topic: 'payments', key: 'alice', payload: { amount: -50 } })
  })

  const { balance } = await Account.findByPk('alice', { rejectOnEmpty: true })
  await instance.close()
  await lockstep.close()
  return { paid, refused, withCoupon, balance }
}
