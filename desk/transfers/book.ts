import { lockRows, type Transaction } from 'pg-lockstep'
import { notFound, ProblemError } from '../http/problem.ts'
import { BANK, SET_BALANCES, TRANSFERS_OF_REQUESTS, WRITE_ENTRIES, WRITE_TRANSFERS } from './transfers.sql.ts'

export interface Transfer {
  readonly id: string
  readonly from: string
  readonly to: string
  readonly amount: number
  /** The Idempotency-Key of the request. */
  readonly request: string | undefined
}

/** What `book` needs of a transaction: its own, or that of many callers. */
type BookTransaction = Pick<Transaction, 'isolation' | 'query' | 'queryAtCommit'>

/** A transfer that is in the books. */
export interface Booked extends Transfer {
  /** Whether the same request has made it before. */
  readonly replayed: boolean
}

/**
 * Books transfers, one or many, in one transaction: one answer for each, in their order. Every row is locked at once and in one order,
 * each transfer is decided in memory on what those before it left, and all are written together with COMMIT.
 */
export async function book(tx: BookTransaction, transfers: readonly Transfer[]): Promise<(Booked | ProblemError)[]> {
  const accounts = await lockRows<{ id: string; balance: string }>(
    tx,
    'lockstep_desk.accounts',
    transfers.flatMap(({ from, to }) => [from, to]),
    { mode: 'noKeyUpdate', allowMissing: true },
  )
  const balances = new Map(accounts.map(({ id, balance }) => [id, Number(balance)]))
  // Read under the locks: a first request that was still running has committed by now, or never will.
  const known = await transfersOf(tx, transfers)
  const decided: Transfer[] = []
  const answers = transfers.map((transfer): Booked | ProblemError => {
    const before = transfer.request === undefined ? undefined : known.get(transfer.request)
    if (before !== undefined) return isSame(before, transfer) ? { ...before, replayed: true } : keyReused()
    const { from, to, amount } = transfer
    const [source, target] = [balances.get(from), balances.get(to)]
    if (source === undefined) return notFound('account', from)
    if (target === undefined) return notFound('account', to)
    if (source < amount && from !== BANK) return insufficientFunds(from, source, amount)
    balances.set(from, source - amount).set(to, target + amount)
    if (transfer.request !== undefined) known.set(transfer.request, transfer)
    decided.push(transfer)
    return { ...transfer, replayed: false }
  })
  if (decided.length > 0) await write(tx, balances, decided)
  return answers
}

async function transfersOf(tx: BookTransaction, transfers: readonly Transfer[]): Promise<Map<string, Transfer>> {
  const requests = transfers.flatMap(({ request }) => (request === undefined ? [] : [request]))
  if (requests.length === 0) return new Map()
  const { rows } = await tx.query<Transfer & { request: string }>(TRANSFERS_OF_REQUESTS, [requests])
  return new Map(rows.map((row) => [row.request, row]))
}

async function write(
  tx: BookTransaction,
  balances: ReadonlyMap<string, number>,
  transfers: readonly Transfer[],
): Promise<void> {
  const ids = transfers.map(({ id }) => id)
  const sources = transfers.map(({ from }) => from)
  const targets = transfers.map(({ to }) => to)
  const amounts = transfers.map(({ amount }) => amount)
  const requests = transfers.map(({ request }) => request ?? null)
  await tx.queryAtCommit(SET_BALANCES, [[...balances.keys()], [...balances.values()]])
  await tx.queryAtCommit(WRITE_TRANSFERS, [ids, sources, targets, amounts, requests])
  await tx.queryAtCommit(WRITE_ENTRIES, [ids, sources, targets, amounts])
}

function isSame(one: Transfer, other: Transfer): boolean {
  return one.from === other.from && one.to === other.to && one.amount === other.amount
}

export function keyReused(): ProblemError {
  const detail = 'The first transfer with this key was another one. Use a new key.'
  return new ProblemError('key-reused', detail)
}

function insufficientFunds(account: string, balance: number, amount: number): ProblemError {
  const detail = `The account ${account} has ${balance}, which is less than ${amount}.`
  return new ProblemError('insufficient-funds', detail, { members: { balance } })
}
