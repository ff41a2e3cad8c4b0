/**
 * An account that many customers pay into.
 *
 * The idea: a row that every transfer changes can be changed once a commit, so the commits are what there is too few of. `combine`
 * serves all callers that wait for the account with one transaction. `run` locks all rows of the batch at once, in one order, decides
 * each transfer by itself, and writes with one UPDATE and one INSERT. A transfer that is not covered gets an Error of its own; the
 * others are not touched by it.
 */
import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { key, Lockstep, lockRows, type Transaction } from 'pg-lockstep'
import { on } from 'pg-lockstep/observe'

export interface HotAccountResult {
  /** What the shop has in the end. */
  readonly shop: number
  /** What the customers have left, together. */
  readonly customers: number
  /** Whether every balance is what the account began with and its entries since. */
  readonly booksAgree: boolean
  readonly sumOfEntries: number
  readonly calls: number
  readonly paid: number
  /** How many calls were refused, by reason. */
  readonly refused: Readonly<Record<string, number>>
  readonly transactions: number
}

class InsufficientFundsError extends Error {
  override readonly name = 'InsufficientFundsError'
}
class UnknownAccountError extends Error {
  override readonly name = 'UnknownAccountError'
}

interface Payment {
  readonly id: string
  readonly from: string
  readonly to: string
  readonly amount: number
}

const CUSTOMERS = 20
const PAYMENTS_EACH = 15

/** What each customer begins with: enough for ten of its fifteen payments. */
const TABLES = `
  CREATE TABLE hot_accounts (id text PRIMARY KEY, balance integer NOT NULL CHECK (balance >= 0), opened_with integer NOT NULL);
  CREATE TABLE hot_entries (
    payment uuid NOT NULL, account text NOT NULL REFERENCES hot_accounts, amount integer NOT NULL, PRIMARY KEY (payment, account));
  INSERT INTO hot_accounts SELECT 'customer ' || n, 100, 100 FROM generate_series(1, ${CUSTOMERS}) AS n;
  INSERT INTO hot_accounts VALUES ('shop', 0, 0)`

/** One answer for each payment, in their order: the new balance of the payer, or why it was refused. */
async function payAll(tx: Transaction, payments: readonly Payment[]): Promise<(number | Error)[]> {
  const ids = payments.flatMap(({ from, to }) => [from, to])
  const rows = await lockRows<{ id: string; balance: number }>(tx, 'hot_accounts', ids, {
    mode: 'noKeyUpdate',
    allowMissing: true,
  })
  // Decided in memory, on rows that no other transaction can change: each payment sees what those before it left.
  const balances = new Map(rows.map(({ id, balance }) => [id, balance]))
  const entries: { payment: string; account: string; amount: number }[] = []
  const answers = payments.map(({ id, from, to, amount }) => {
    const [source, target] = [balances.get(from), balances.get(to)]
    if (source === undefined || target === undefined) return new UnknownAccountError(`${from} or ${to}`)
    if (source < amount) return new InsufficientFundsError(`${from} has ${source}, not ${amount}`)
    balances.set(from, source - amount).set(to, target + amount)
    entries.push({ payment: id, account: from, amount: -amount }, { payment: id, account: to, amount })
    return source - amount
  })
  // Both go together with COMMIT: their answers are not waited for while the account is locked.
  await tx.queryAtCommit(
    `UPDATE hot_accounts SET balance = new.balance
       FROM unnest($1::text[], $2::integer[]) AS new (id, balance) WHERE hot_accounts.id = new.id`,
    [[...balances.keys()], [...balances.values()]],
  )
  await tx.queryAtCommit(`INSERT INTO hot_entries SELECT * FROM unnest($1::uuid[], $2::text[], $3::integer[])`, [
    entries.map(({ payment }) => payment),
    entries.map(({ account }) => account),
    entries.map(({ amount }) => amount),
  ])
  return answers
}

export async function run(pool: pg.Pool): Promise<HotAccountResult> {
  const lockstep = new Lockstep(pool)
  await lockstep.migrate()
  await pool.query(TABLES)

  const pay = lockstep.combine({ key: ({ to }: Payment) => key`Account:${to}`, run: payAll })

  let transactions = 0
  const stop = on('combine.batch', () => {
    transactions++
  })
  const payments = Array.from({ length: CUSTOMERS * PAYMENTS_EACH }, (_, number): Payment => {
    return { id: randomUUID(), from: `customer ${(number % CUSTOMERS) + 1}`, to: 'shop', amount: 10 }
  })
  // In the middle of the crowd, one that can never be.
  payments.splice(100, 0, { id: randomUUID(), from: 'nobody', to: 'shop', amount: 10 })
  const outcomes = await Promise.allSettled(payments.map((payment) => pay(payment)))
  stop()

  const refused: Record<string, number> = {}
  for (const outcome of outcomes) {
    if (outcome.status === 'fulfilled') continue
    const { name } = outcome.reason as Error
    refused[name] = (refused[name] ?? 0) + 1
  }
  const { rows } = await pool.query<{ id: string; balance: number; expected: number; entries: number }>(
    `SELECT id, balance, opened_with + coalesce(sum(amount), 0)::integer AS expected, coalesce(sum(amount), 0)::integer AS entries
       FROM hot_accounts LEFT JOIN hot_entries ON account = id GROUP BY id`,
  )
  const shop = rows.find(({ id }) => id === 'shop')?.balance ?? 0
  await lockstep.close()
  return {
    shop,
    customers: rows.reduce((sum, { balance }) => sum + balance, 0) - shop,
    booksAgree: rows.every(({ balance, expected }) => balance === expected),
    sumOfEntries: rows.reduce((sum, { entries }) => sum + entries, 0),
    calls: payments.length,
    paid: outcomes.filter(({ status }) => status === 'fulfilled').length,
    refused,
    transactions,
  }
}
