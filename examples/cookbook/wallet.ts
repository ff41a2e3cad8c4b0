/**
 * Wallet: two payments are each covered by the balance, but not both.
 *
 * The balance is the sum of a ledger's entries. A payment reads the balance, decides, and appends an entry: two payments never write the
 * same row, so PostgreSQL sees no conflict at READ COMMITTED.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { meeting } from './meeting.ts'

export async function run(pool: pg.Pool, locked: boolean): Promise<{ readonly balance: number }> {
  const lockstep = new Lockstep(pool)
  await pool.query(`
    DROP TABLE IF EXISTS entries;
    CREATE TABLE entries (wallet text NOT NULL, amount integer NOT NULL);
    INSERT INTO entries VALUES ('ann', 100)`)
  const meet = meeting(2, locked)
  const BALANCE = 'SELECT coalesce(sum(amount), 0)::integer AS balance FROM entries WHERE wallet = $1'

  async function pay(wallet: string, amount: number): Promise<boolean> {
    return lockstep.transaction(locked ? { lock: key`Wallet:${wallet}` } : {}, async (tx) => {
      const { rows } = await tx.query<{ balance: number }>(BALANCE, [wallet])
      await meet()
      if ((rows[0]?.balance ?? 0) < amount) return false
      await tx.query('INSERT INTO entries VALUES ($1, $2)', [wallet, -amount])
      return true
    })
  }

  await Promise.all([pay('ann', 80), pay('ann', 80)])
  const { rows } = await pool.query<{ balance: number }>(BALANCE, ['ann'])
  await lockstep.close()
  return { balance: rows[0]?.balance ?? Number.NaN }
}
