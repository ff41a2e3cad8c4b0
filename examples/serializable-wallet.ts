/**
 * A rule over several rows, SERIALIZABLE, under a lock.
 *
 * The idea: SERIALIZABLE protects the rule against every writer, also against code that takes no lock; the lock spares callers that
 * take it the serialization failures. Without the lock most of these callers would fail with 40001 and be run again.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { on } from 'pg-lockstep/observe'

export interface WalletResult {
  /** What is left in both pots together. */
  readonly left: number
  readonly paid: number
  /** How often a function had to be run again. */
  readonly retries: number
}

export async function run(pool: pg.Pool): Promise<WalletResult> {
  const lockstep = new Lockstep(pool)
  await lockstep.migrate()
  await pool.query('CREATE TABLE pots (owner text, name text, amount integer NOT NULL, PRIMARY KEY (owner, name))')
  await pool.query(`INSERT INTO pots VALUES ('ann', 'daily', 60), ('ann', 'savings', 40)`)

  let retries = 0
  const stop = on('transaction.retried', () => {
    retries++
  })

  /** One pot may go below zero as long as both together do not. */
  async function pay(owner: string, pot: string, amount: number): Promise<boolean> {
    return lockstep.transaction({ lock: key`Wallet:${owner}`, isolation: 'serializable' }, async (tx) => {
      const { rows } = await tx.query<{ total: number }>(
        'SELECT sum(amount)::integer AS total FROM pots WHERE owner = $1',
        [owner],
      )
      if ((rows[0]?.total ?? 0) < amount) return false
      await tx.query('UPDATE pots SET amount = amount - $1 WHERE owner = $2 AND name = $3', [amount, owner, pot])
      return true
    })
  }

  const answers = await Promise.all(
    Array.from({ length: 32 }, (_, number) => pay('ann', number % 2 === 0 ? 'daily' : 'savings', 5)),
  )
  stop()

  const { rows } = await pool.query<{ total: number }>('SELECT sum(amount)::integer AS total FROM pots')
  await lockstep.close()
  return { left: rows[0]?.total ?? 0, paid: answers.filter((paid) => paid).length, retries }
}
