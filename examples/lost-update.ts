/**
 * The same counter, without a lock and with one.
 *
 * The idea: reading a value, computing in the program and writing it back loses updates as soon as two callers do it at once.
 * Under the lock each caller reads what the one before it has committed.
 */
import type pg from 'pg'
import { key, Lockstep, type TransactionOptions } from 'pg-lockstep'

export interface LostUpdateResult {
  readonly callers: number
  readonly withoutLock: number
  readonly withLock: number
}

const CALLERS = 20

export async function run(pool: pg.Pool): Promise<LostUpdateResult> {
  const lockstep = new Lockstep(pool)
  await lockstep.migrate()
  await pool.query('CREATE TABLE counters (name text PRIMARY KEY, value integer NOT NULL)')

  async function countTo(name: string, options: TransactionOptions): Promise<number> {
    await pool.query('INSERT INTO counters VALUES ($1, 0)', [name])
    const addOne = (): Promise<void> =>
      lockstep.transaction(options, async (tx) => {
        const { rows } = await tx.query<{ value: number }>('SELECT value FROM counters WHERE name = $1', [name])
        // What a real program does here: compute, ask another service, think.
        await tx.query('SELECT pg_sleep(0.01)')
        await tx.query('UPDATE counters SET value = $1 WHERE name = $2', [(rows[0]?.value ?? 0) + 1, name])
      })
    await Promise.all(Array.from({ length: CALLERS }, addOne))
    const { rows } = await pool.query<{ value: number }>('SELECT value FROM counters WHERE name = $1', [name])
    return rows[0]?.value ?? 0
  }

  const withoutLock = await countTo('free', {})
  const withLock = await countTo('locked', { lock: key`Counter:${'locked'}` })
  await lockstep.close()
  return { callers: CALLERS, withoutLock, withLock }
}
