/**
 * From hand-written advisory locks: two versions of one function run in parallel while a deploy rolls.
 *
 * The old code locks `hashtext('account:ann')`, Lockstep locks another number. So a first deploy makes the old code take both locks, and a
 * second one replaces it. Without the first deploy, old and new code do not exclude each other, and an update is lost.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { meeting } from '../cookbook/meeting.ts'

const LOCK_OLD = `SELECT pg_advisory_xact_lock(hashtext('account:' || $1))`
const LOCK_BOTH = `${LOCK_OLD}, pg_advisory_xact_lock(lockstep.lock_id('lock', 'Account:' || $1))`

/** `prepared`: whether the first deploy has happened. */
export async function run(pool: pg.Pool, prepared: boolean): Promise<{ readonly balance: number }> {
  const lockstep = new Lockstep(pool)
  await pool.query(`
    DROP TABLE IF EXISTS accounts;
    CREATE TABLE accounts (id text PRIMARY KEY, balance integer NOT NULL);
    INSERT INTO accounts VALUES ('ann', 100)`)
  const meet = meeting(2, prepared)

  async function before(account: string, amount: number): Promise<void> {
    const client = await pool.connect()
    try {
      await client.query('BEGIN')
      await client.query(prepared ? LOCK_BOTH : LOCK_OLD, [account])
      const { rows } = await client.query<{ balance: number }>('SELECT balance FROM accounts WHERE id = $1', [account])
      await meet()
      const balance = (rows[0]?.balance ?? 0) - amount
      await client.query('UPDATE accounts SET balance = $1 WHERE id = $2', [balance, account])
      await client.query('COMMIT')
    } catch (error) {
      await client.query('ROLLBACK')
      throw error
    } finally {
      client.release()
    }
  }

  async function after(account: string, amount: number): Promise<void> {
    await lockstep.transaction({ lock: key`Account:${account}` }, async (tx) => {
      const { rows } = await tx.query<{ balance: number }>('SELECT balance FROM accounts WHERE id = $1', [account])
      await meet()
      const balance = (rows[0]?.balance ?? 0) - amount
      await tx.query('UPDATE accounts SET balance = $1 WHERE id = $2', [balance, account])
    })
  }

  await Promise.all([before('ann', 10), after('ann', 20)])
  const { rows } = await pool.query<{ balance: number }>(`SELECT balance FROM accounts WHERE id = 'ann'`)
  await lockstep.close()
  return { balance: rows[0]?.balance ?? 0 }
}
