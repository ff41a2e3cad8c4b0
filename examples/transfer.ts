/**
 * A transfer between two accounts under two locks.
 *
 * The idea: name everything that the decision depends on, in any order. Transfers from A to B and from B to A take the two
 * locks in the same order, so they never wait for each other in a circle, and the balance that one of them reads is the one
 * that it changes.
 */
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'

export interface TransferResult {
  readonly alice: number
  readonly bob: number
  /** Transfers that were refused because the balance did not cover them. */
  readonly refused: number
}

class InsufficientFundsError extends Error {}

export async function run(pool: pg.Pool): Promise<TransferResult> {
  const lockstep = new Lockstep(pool)
  await lockstep.migrate()
  await pool.query('CREATE TABLE accounts (id text PRIMARY KEY, balance integer NOT NULL)')
  await pool.query(`INSERT INTO accounts VALUES ('alice', 100), ('bob', 100)`)

  async function transfer(from: string, to: string, amount: number): Promise<void> {
    await lockstep.transaction({ lock: [key`Account:${from}`, key`Account:${to}`] }, async (tx) => {
      const { rows } = await tx.query<{ balance: number }>('SELECT balance FROM accounts WHERE id = $1', [from])
      const balance = rows[0]?.balance ?? 0
      if (balance < amount) throw new InsufficientFundsError(`${from} has ${balance}`)
      await tx.query('UPDATE accounts SET balance = $1 WHERE id = $2', [balance - amount, from])
      await tx.query('UPDATE accounts SET balance = balance + $1 WHERE id = $2', [amount, to])
    })
  }

  // Both directions at once; thirty times 10 from alice is more than she ever has without bob's.
  const transfers = Array.from({ length: 40 }, (_, number) =>
    number % 4 === 0 ? transfer('bob', 'alice', 10) : transfer('alice', 'bob', 10),
  )
  const outcomes = await Promise.allSettled(transfers)
  for (const outcome of outcomes) {
    if (outcome.status === 'rejected' && !(outcome.reason instanceof InsufficientFundsError)) throw outcome.reason
  }

  const { rows } = await pool.query<{ id: string; balance: number }>('SELECT id, balance FROM accounts')
  const balances = new Map(rows.map((row) => [row.id, row.balance]))
  await lockstep.close()
  return {
    alice: balances.get('alice') ?? 0,
    bob: balances.get('bob') ?? 0,
    refused: outcomes.filter((outcome) => outcome.status === 'rejected').length,
  }
}
