/**
 * Locks inside a transaction that other code opened.
 *
 * The idea: where a framework or older code sends BEGIN and COMMIT, `join()` takes the locks in that transaction. They are
 * held until its COMMIT. What is read after `join()` is guarded; what was read before it is not.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'

export interface JoinResult {
  /** The numbers that were given out, in ascending order. */
  readonly numbers: readonly number[]
}

export async function run(pool: pg.Pool): Promise<JoinResult> {
  const lockstep = new Lockstep(pool)
  await lockstep.migrate()
  await pool.query('CREATE TABLE invoices (number integer PRIMARY KEY, customer text NOT NULL)')

  /** The next number without a gap: the highest one plus one, which only one caller at a time may compute. */
  async function addInvoice(customer: string): Promise<number> {
    const client = await pool.connect()
    try {
      await client.query('BEGIN ISOLATION LEVEL READ COMMITTED')
      const tx = await lockstep.join(client, { lock: key`Invoices:${'global'}` })
      const { rows } = await tx.query<{ next: number }>('SELECT coalesce(max(number), 0) + 1 AS next FROM invoices')
      const next = rows[0]?.next ?? 1
      await client.query('INSERT INTO invoices VALUES ($1, $2)', [next, customer])
      await client.query('COMMIT')
      return next
    } catch (error) {
      await client.query('ROLLBACK')
      throw error
    } finally {
      client.release()
    }
  }

  const numbers = await Promise.all(Array.from({ length: 6 }, (_, number) => addInvoice(`customer ${number}`)))
  await lockstep.close()
  return { numbers: numbers.toSorted((a, b) => a - b) }
}
