import { key, lockRows, type Lockstep, type Transaction } from 'pg-lockstep'
import type pg from 'pg'
import {
  BEGIN,
  beginAndLock,
  COMMIT,
  LOCK_BOTH,
  RECORD,
  ROLLBACK,
  SET_BALANCE,
  WRITE_BATCH,
  writeAndCommit,
} from './ledger.sql.ts'

export interface Transfer {
  readonly id: string
  readonly source: number
  readonly target: number
  readonly amount: number
}

/** The balance does not cover it: nothing is moved. */
export class InsufficientFundsError extends Error {}

interface Account {
  readonly id: number
  readonly balance: string | number
}

/** Moves the money of all transfers that are covered, in their order: one statement that locks, one that writes. */
export async function moveAll(tx: Transaction, transfers: readonly Transfer[]): Promise<(true | Error)[]> {
  const ids = transfers.flatMap(({ source, target }) => [source, target])
  const accounts = await lockRows<Account>(tx, 'accounts', ids)
  const balances = new Map(accounts.map(({ id, balance }) => [id, Number(balance)]))
  const results = transfers.map(({ source, target, amount }): true | Error => {
    const funds = balances.get(source) ?? 0
    if (funds < amount) return new InsufficientFundsError(`${source} has ${funds}`)
    balances.set(source, funds - amount)
    balances.set(target, (balances.get(target) ?? 0) + amount)
    return true
  })
  const done = transfers.filter((_, index) => results[index] === true)
  if (done.length === 0) return results
  await tx.queryAtCommit(WRITE_BATCH, [
    [...balances.keys()],
    [...balances.values()],
    done.map(({ id }) => id),
    done.map(({ source }) => source),
    done.map(({ target }) => target),
    done.map(({ amount }) => amount),
  ])
  return results
}

/** One transfer in one transaction, its rows locked in order. */
export function plainly(lockstep: Lockstep): (transfer: Transfer) => Promise<true> {
  return (transfer) =>
    lockstep.transaction({}, async (tx) => {
      const [result] = await moveAll(tx, [transfer])
      if (result !== true) throw result as Error
      return result
    })
}

/** Many transfers to one account in one transaction. */
export function combined(lockstep: Lockstep): (transfer: Transfer) => Promise<true> {
  return lockstep.combine<Transfer, true | Error>({ key: ({ target }) => key`Account:${target}`, run: moveAll })
}

/** As document 003 has it: both rows locked in ascending order, then written one by one. */
export function byDocument003(pool: pg.Pool): (transfer: Transfer) => Promise<true> {
  return async ({ id, source, target, amount }) => {
    const client = await pool.connect()
    try {
      await client.query(BEGIN)
      const { rows } = await client.query<Account>(LOCK_BOTH, [source, target])
      const balanceOf = (account: number): number => Number(rows.find((row) => row.id === account)?.balance ?? 0)
      const funds = balanceOf(source)
      if (funds < amount) throw new InsufficientFundsError(`${source} has ${funds}`)
      await client.query(SET_BALANCE, [source, funds - amount])
      await client.query(SET_BALANCE, [target, balanceOf(target) + amount])
      await client.query(RECORD, [id, source, target, amount])
      await client.query(COMMIT)
      return true
    } catch (error) {
      await client.query(ROLLBACK)
      throw error
    } finally {
      client.release()
    }
  }
}

/** The most that the limit puts into one transaction, as `combine` does. */
const MOST_AT_ONCE = 100

interface Waiting {
  readonly transfer: Transfer
  readonly settle: (error?: Error) => void
}

/**
 * The limit: all calls of a process that wait for one account travel in two messages and one flush. Rows alone keep processes apart, and
 * a batch fails as a whole.
 */
export function atLimit(pool: pg.Pool): (transfer: Transfer) => Promise<true> {
  const queues = new Map<number, Waiting[]>()
  const work = async (target: number, queue: Waiting[]): Promise<void> => {
    while (queue.length > 0) {
      const batch = queue.splice(0, MOST_AT_ONCE)
      const error = await moveInTwoMessages(
        pool,
        batch.map(({ transfer }) => transfer),
      ).then(
        () => undefined,
        (reason: unknown) => (reason instanceof Error ? reason : new Error(String(reason))),
      )
      for (const waiting of batch) waiting.settle(error)
      // Who calls again as soon as it has its answer is in the next batch.
      await new Promise((resolve) => setImmediate(resolve))
    }
    queues.delete(target)
  }
  return (transfer) =>
    new Promise((resolve, reject) => {
      const { target } = transfer
      const waiting: Waiting = {
        transfer,
        settle: (error) => (error === undefined ? resolve(true) : reject(error)),
      }
      const queue = queues.get(target)
      if (queue === undefined) {
        const started = [waiting]
        queues.set(target, started)
        void work(target, started)
      } else queue.push(waiting)
    })
}

async function moveInTwoMessages(pool: pg.Pool, transfers: readonly Transfer[]): Promise<void> {
  const client = await pool.connect()
  try {
    const ids = [...new Set(transfers.flatMap(({ source, target }) => [source, target]))]
    const answers = (await client.query(beginAndLock(ids))) as unknown as [unknown, pg.QueryResult<Account>]
    const balances = new Map(answers[1].rows.map(({ id, balance }) => [id, Number(balance)]))
    for (const { source, target, amount } of transfers) {
      const funds = balances.get(source) ?? 0
      if (funds < amount) throw new InsufficientFundsError(`${source} has ${funds}`)
      balances.set(source, funds - amount)
      balances.set(target, (balances.get(target) ?? 0) + amount)
    }
    await client.query(writeAndCommit(balances, transfers))
  } catch (error) {
    await client.query(ROLLBACK)
    throw error
  } finally {
    client.release()
  }
}
