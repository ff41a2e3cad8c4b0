/**
 * Transfers with double entry, on rows that are locked in one order.
 *
 * The idea: `lockRows` locks both accounts in the order of their ids, whichever of the two pays. Transfers from A to B and from B to A
 * meet at the same first row and do not deadlock, and the balance that is read is the one that is changed. Each transfer writes
 * two entries that add up to zero, so the books can be checked against the balances at any time.
 */
import type pg from 'pg'
import { Lockstep, lockRows, RowsMissingError } from 'pg-lockstep'
import { on } from 'pg-lockstep/observe'

export interface OrderedTransferResult {
  readonly balances: Readonly<Record<string, number>>
  /** What the entries of each account add up to. */
  readonly entries: Readonly<Record<string, number>>
  readonly sumOfEntries: number
  /** Transfers that are in the books. */
  readonly transfers: number
  /** Transfers of the crowd that the balance did not cover. */
  readonly notCovered: number
  /** How often a transaction had to be run again: a deadlock would be one. */
  readonly retries: number
  /** What each of the transfers that cannot be was answered with. */
  readonly refused: Readonly<Record<string, string>>
}

class InsufficientFundsError extends Error {
  override readonly name = 'InsufficientFundsError'
}
class SameAccountError extends Error {
  override readonly name = 'SameAccountError'
}
class InvalidAmountError extends Error {
  override readonly name = 'InvalidAmountError'
}
class UnknownAccountError extends Error {
  override readonly name = 'UnknownAccountError'
}

/** Money comes from somewhere: the bank owes what the others have. */
const TABLES = `
  CREATE TABLE ledger_accounts (id text PRIMARY KEY, balance integer NOT NULL, CHECK (balance >= 0 OR id = 'bank'));
  CREATE TABLE ledger_entries (
    transfer uuid NOT NULL, account text NOT NULL REFERENCES ledger_accounts, amount integer NOT NULL,
    PRIMARY KEY (transfer, account));
  INSERT INTO ledger_accounts VALUES ('alice', 100), ('bob', 100), ('bank', -200);
  INSERT INTO ledger_entries SELECT gen_random_uuid(), id, balance FROM ledger_accounts`

export async function run(pool: pg.Pool): Promise<OrderedTransferResult> {
  const lockstep = new Lockstep(pool)
  await lockstep.migrate()
  await pool.query(TABLES)

  async function transfer(from: string, to: string, amount: number): Promise<void> {
    if (!Number.isSafeInteger(amount) || amount <= 0) throw new InvalidAmountError(`${amount} cannot be transferred`)
    if (from === to) throw new SameAccountError(`${from} cannot pay itself`)
    try {
      await lockstep.transaction({}, async (tx) => {
        // noKeyUpdate is enough for an UPDATE of the balance, and does not block entries that refer to the account.
        const accounts = await lockRows<{ balance: number }>(tx, 'ledger_accounts', [from, to], { mode: 'noKeyUpdate' })
        const balance = accounts.get(from)?.balance ?? 0
        if (balance < amount) throw new InsufficientFundsError(`${from} has ${balance}, not ${amount}`)
        await tx.query(
          `UPDATE ledger_accounts SET balance = balance + CASE id WHEN $1 THEN -$3::integer ELSE $3::integer END
            WHERE id IN ($1, $2)`,
          [from, to, amount],
        )
        await tx.query(
          `INSERT INTO ledger_entries SELECT transfer, account, amount
             FROM gen_random_uuid() AS transfer, (VALUES ($1, -$3::integer), ($2, $3::integer)) AS v (account, amount)`,
          [from, to, amount],
        )
      })
    } catch (error) {
      throw error instanceof RowsMissingError
        ? new UnknownAccountError(`there is no ${error.missing.join(', ')}`)
        : error
    }
  }

  let retries = 0
  const stop = on('transaction.retried', () => {
    retries++
  })

  // Both directions at once. Ninety times 10 from alice is more than she ever has.
  const outcomes = await Promise.allSettled(
    Array.from({ length: 120 }, (_, number) =>
      number % 4 === 0 ? transfer('bob', 'alice', 10) : transfer('alice', 'bob', 10),
    ),
  )
  stop()
  for (const outcome of outcomes) {
    if (outcome.status === 'rejected' && !(outcome.reason instanceof InsufficientFundsError)) throw outcome.reason
  }

  const answer = (attempt: Promise<void>): Promise<string> => attempt.then(() => 'done', String)
  const refused = {
    tooMuch: await answer(transfer('alice', 'bob', 1000)),
    toItself: await answer(transfer('alice', 'alice', 10)),
    nothing: await answer(transfer('alice', 'bob', 0)),
    backwards: await answer(transfer('alice', 'bob', -10)),
    fromNobody: await answer(transfer('nobody', 'bob', 10)),
    toNobody: await answer(transfer('alice', 'nobody', 10)),
  }

  const { rows } = await pool.query<{ id: string; balance: number; entries: number; transfers: number }>(
    `SELECT id, balance, sum(amount)::integer AS entries, count(*)::integer - 1 AS transfers
       FROM ledger_accounts JOIN ledger_entries ON account = id GROUP BY id`,
  )
  await lockstep.close()
  return {
    balances: Object.fromEntries(rows.map(({ id, balance }) => [id, balance])),
    entries: Object.fromEntries(rows.map(({ id, entries }) => [id, entries])),
    sumOfEntries: rows.reduce((sum, { entries }) => sum + entries, 0),
    transfers: rows.find(({ id }) => id === 'alice')?.transfers ?? 0,
    notCovered: outcomes.filter(({ status }) => status === 'rejected').length,
    retries,
    refused,
  }
}
