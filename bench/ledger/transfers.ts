import { key, lockRows, type Lockstep, type Transaction } from 'pg-lockstep'
import type pg from 'pg'
import { BEGIN, COMMIT, LOCK_BOTH, RECORD, ROLLBACK, SET_BALANCE, WRITE_BATCH } from './ledger.sql.ts'

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
