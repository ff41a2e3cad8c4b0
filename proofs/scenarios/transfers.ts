import { lockRows } from 'pg-lockstep'
import { conservedTotal } from '../checkers/conservedTotal.ts'
import { exactlyOnce } from '../checkers/exactlyOnce.ts'
import { noDeadlock } from '../checkers/noDeadlock.ts'
import type { Random } from '../seed.ts'
import { byHand, type Scenario } from './scenario.ts'
import { ACCOUNTS_TABLE, ADD, FOUND, PREPARE, RECORD, TABLES } from './transfers.sql.ts'

const ACCOUNTS = [0, 1, 2, 3]
const INITIAL = 1000
const nameOf = (round: number, account: number): string => `account ${round}.${account}`

function keyFor(round: number, random: Random): string {
  const [source, target] = random.shuffled(ACCOUNTS) as [number, number]
  return `${nameOf(round, source)} > ${nameOf(round, target)}`
}

/** Money from A to B while somebody else moves it from B to A. */
export const transfers: Scenario = {
  name: 'transfers',
  title: 'Transfers in opposite directions',
  forms: {
    naive: 'takes from the source, then adds to the target: two in opposite directions wait for each other',
    lockstep: 'lockRows() locks both rows in one order first',
  },
  lanes: 2,
  checkers: [conservedTotal(ACCOUNTS.length * INITIAL), exactlyOnce, noDeadlock],
  tables: TABLES,
  prepare: (round) => ({ text: PREPARE, values: [round, ACCOUNTS.map((each) => nameOf(round, each)), INITIAL] }),
  play: {
    naive: ({ pool, round }) => ({
      keyFor: (random) => keyFor(round, random),
      operate: (operation) =>
        byHand(pool, async (client) => {
          const [source, target] = operation.key.split(' > ') as [string, string]
          await client.query(ADD, [source, -1])
          operation.tell('wrote', { value: `took 1 from ${source}` })
          await client.query(ADD, [target, 1])
          operation.tell('wrote', { value: `gave 1 to ${target}` })
          await client.query(RECORD, [round, operation.id, source, target])
          return undefined
        }),
    }),
    lockstep: ({ lockstep, round }) => ({
      keyFor: (random) => keyFor(round, random),
      operate: (operation) =>
        lockstep.transaction({}, async (tx) => {
          const [source, target] = operation.key.split(' > ') as [string, string]
          await lockRows(tx, ACCOUNTS_TABLE, [source, target])
          operation.tell('granted')
          await tx.query(ADD, [source, -1])
          await tx.query(ADD, [target, 1])
          operation.tell('wrote', { value: `moved 1 from ${source} to ${target}` })
          await tx.queryAtCommit(RECORD, [round, operation.id, source, target])
          return undefined
        }),
    }),
  },
  found: (round) => ({ text: FOUND, values: [round] }),
}
