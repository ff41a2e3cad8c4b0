import { key, lockRows, type Transaction } from 'pg-lockstep'
import { conservedTotal, explainedBalances } from '../checkers/conservedTotal.ts'
import { exactlyOnce } from '../checkers/exactlyOnce.ts'
import { noDeadlock } from '../checkers/noServerError.ts'
import type { Random } from '../seed.ts'
import { byHand, type Operation, type Scenario } from './scenario.ts'
import { ACCOUNTS_TABLE, BALANCE, FOUND, PREPARE, RECORD, SET_BALANCE, TABLES, WRITE_BATCH } from './transfers.sql.ts'

const ACCOUNTS = [0, 1, 2, 3]
/** Little enough that some transfers are refused. */
const INITIAL = 1000
const MAX_AMOUNT = 400
const nameOf = (round: number, account: number): string => `account ${round}.${account}`

function keyFor(round: number, random: Random): string {
  const [source, target] = random.shuffled(ACCOUNTS) as [number, number]
  return `${nameOf(round, source)} > ${nameOf(round, target)}`
}

/** What a transfer receives that the balance does not cover: nothing is moved. */
export const INSUFFICIENT = 'INSUFFICIENT FUNDS'

interface Transfer {
  readonly operation: Operation
  readonly source: string
  readonly target: string
  readonly amount: number
}

function transferOf(operation: Operation): Transfer {
  const [source, target] = operation.key.split(' > ') as [string, string]
  return { operation, source, target, amount: operation.random.whole(1, MAX_AMOUNT) }
}

/** Moves the money of all transfers that are covered, in their order: one statement that locks, one that writes. */
async function moveAll(tx: Transaction, round: number, all: readonly Transfer[]): Promise<(true | Error)[]> {
  // code: lockstep
  const ids = all.flatMap(({ source, target }) => [source, target])
  const accounts = await lockRows<{ id: string; balance: string | number }>(tx, ACCOUNTS_TABLE, ids)
  for (const { operation } of all) operation.tell('granted')
  const balances = new Map(accounts.map(({ id, balance }) => [id, Number(balance)]))
  const results = all.map(({ source, target, amount }): true | Error => {
    const funds = balances.get(source) ?? 0
    if (funds < amount) return new Error(`${INSUFFICIENT}: ${source} has ${funds}`)
    balances.set(source, funds - amount)
    balances.set(target, (balances.get(target) ?? 0) + amount)
    return true
  })
  // code: end
  const done = all.filter((_, place) => results[place] === true)
  for (const { operation, source, target, amount } of done)
    operation.tell('wrote', { value: `moved ${amount} from ${source} to ${target}` })
  if (done.length > 0) {
    await tx.queryAtCommit(WRITE_BATCH, [
      round,
      [...balances.keys()],
      [...balances.values()],
      done.map(({ operation: { id } }) => id),
      done.map(({ source }) => source),
      done.map(({ target }) => target),
      done.map(({ amount }) => amount),
    ])
  }
  return results
}

/** Money from A to B while another caller moves it from B to A. */
export const transfers: Scenario = {
  name: 'transfers',
  title: 'Transfers in opposite directions',
  forms: {
    naive: 'reads both balances and writes them: two at once overwrite each other, or wait for each other',
    lockstep: 'lockRows() locks the rows in one order first; half of the transfers go through combine()',
  },
  lanes: 2,
  checkers: [conservedTotal(ACCOUNTS.length * INITIAL), explainedBalances(INITIAL), exactlyOnce, noDeadlock],
  naiveBreaks: [noDeadlock.name, conservedTotal(0).name],
  tables: TABLES,
  prepare: (round) => ({ text: PREPARE, values: [round, ACCOUNTS.map((each) => nameOf(round, each)), INITIAL] }),
  play: {
    naive: ({ pool, round }) => ({
      keyFor: (random) => keyFor(round, random),
      // code: naive
      operate: (operation) =>
        byHand(pool, async (client) => {
          const { source, target, amount } = transferOf(operation)
          const balanceOf = async (id: string): Promise<number> =>
            (await client.query<{ balance: number }>(BALANCE, [id])).rows[0]?.balance ?? 0
          const [from, to] = [await balanceOf(source), await balanceOf(target)]
          if (from < amount) throw new Error(`${INSUFFICIENT}: ${source} has ${from}`)
          await client.query(SET_BALANCE, [source, from - amount])
          operation.tell('wrote', { value: `took ${amount} from ${source}` })
          await client.query(SET_BALANCE, [target, to + amount])
          operation.tell('wrote', { value: `gave ${amount} to ${target}` })
          await client.query(RECORD, [round, operation.id, source, target, amount])
          return undefined
        }),
      // code: end
    }),
    lockstep: ({ lockstep, round }) => {
      const combined = lockstep.combine<Transfer, true | Error>({
        key: ({ target }) => key`ProveTransfers:${target}`,
        run: (tx, all) => moveAll(tx, round, all),
      })
      // code: lockstep
      const plain = (transfer: Transfer): Promise<void> =>
        lockstep.transaction({}, async (tx) => {
          const [result] = await moveAll(tx, round, [transfer])
          if (result !== true) throw result as Error
        })
      // code: end
      return {
        keyFor: (random) => keyFor(round, random),
        async operate(operation) {
          await (operation.lane % 2 === 0 ? plain : combined)(transferOf(operation))
          return undefined
        },
      }
    },
  },
  found: (round) => ({ text: FOUND, values: [round] }),
}
