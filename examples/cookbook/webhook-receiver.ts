/**
 * Webhook receiver: the sender delivers the same event twice at the same time, as senders do after a timeout.
 *
 * The receiver looks whether it has the event, and credits the payment if not. `once` lets one delivery look and credit while the other
 * waits, and then finds the event.
 */
import type pg from 'pg'
import { key, Lockstep, type Transaction } from 'pg-lockstep'
import { meeting } from './meeting.ts'

interface PaymentReceived {
  readonly id: string
  readonly account: string
  readonly amount: number
}

export async function run(pool: pg.Pool, locked: boolean): Promise<{ readonly credited: number }> {
  const lockstep = new Lockstep(pool)
  await pool.query(`
    DROP TABLE IF EXISTS received, credits;
    CREATE TABLE received (id text NOT NULL);
    CREATE TABLE credits (account text NOT NULL, amount integer NOT NULL)`)
  const meet = meeting(2, locked)

  async function find(tx: Transaction, { id }: PaymentReceived): Promise<{ readonly id: string } | undefined> {
    const { rows } = await tx.query<{ id: string }>('SELECT id FROM received WHERE id = $1', [id])
    await meet()
    return rows[0]
  }

  async function credit(tx: Transaction, { id, account, amount }: PaymentReceived): Promise<{ readonly id: string }> {
    await tx.query('INSERT INTO received VALUES ($1)', [id])
    await tx.query('INSERT INTO credits VALUES ($1, $2)', [account, amount])
    return { id }
  }

  async function receive(event: PaymentReceived): Promise<void> {
    if (locked) {
      await lockstep.once(key`Webhook:${event.id}`, {
        find: (tx) => find(tx, event),
        create: (tx) => credit(tx, event),
      })
    } else {
      await lockstep.transaction({}, async (tx) => (await find(tx, event)) ?? credit(tx, event))
    }
  }

  const event = { id: 'evt_1', account: 'ann', amount: 25 }
  await Promise.all([receive(event), receive(event)])
  const { rows } = await pool.query<{ sum: number }>('SELECT sum(amount)::integer AS sum FROM credits')
  await lockstep.close()
  return { credited: rows[0]?.sum ?? 0 }
}
