import { key } from 'pg-lockstep'
import { exactlyOnce } from '../checkers/exactlyOnce.ts'
import { neverBelowZero } from '../checkers/neverBelowZero.ts'
import { noDeadlock } from '../checkers/noServerError.ts'
import { ADD, FOUND, PREPARE, READ, RECORD, TABLES } from './bids.sql.ts'
import { byHand, type Operation, type Scenario } from './scenario.ts'
import { INSUFFICIENT } from './transfers.ts'

const WALLETS = [0, 1, 2, 3]
const INITIAL = 100
const MAX_AMOUNT = 60
const nameOf = (round: number, wallet: number): string => `wallet ${round}.${wallet}`

type Query = (text: string, values: unknown[]) => Promise<{ rows: { balance: number }[] }>

/** A deposit, or a bid that reserves its amount. */
function changeOf({ random }: Operation): number {
  const amount = random.whole(1, MAX_AMOUNT)
  return random.chance(0.5) ? amount : -amount
}

// code: both
async function change(query: Query, round: number, operation: Operation): Promise<number> {
  const amount = changeOf(operation) // below zero: a bid
  const { rows } = await query(READ, [operation.key])
  const balance = rows[0]?.balance ?? 0
  operation.tell('read', { value: balance })
  if (balance + amount < 0) throw new Error(`${INSUFFICIENT}: ${balance}`)
  const changed = await query(ADD, [operation.key, amount])
  const left = changed.rows[0]?.balance ?? 0
  operation.tell('wrote', { value: left })
  await query(RECORD, [round, operation.id, operation.key, left])
  return left
}
// code: end

/** A bid reserves its amount if the wallet covers it, while another bid does the same. */
export const bids: Scenario = {
  name: 'bids',
  title: 'Bids on the same wallets',
  forms: {
    naive: 'reads the balance, and takes the amount if the balance covers it, in one transaction',
    lockstep: 'the same under lockstep.transaction({ lock })',
  },
  lanes: 2,
  checkers: [neverBelowZero, exactlyOnce, noDeadlock],
  naiveBreaks: [neverBelowZero.name],
  tables: TABLES,
  prepare: (round) => ({ text: PREPARE, values: [round, WALLETS.map((each) => nameOf(round, each)), INITIAL] }),
  play: {
    naive: ({ pool, round }) => ({
      keyFor: (random) => nameOf(round, random.pick(WALLETS)),
      // code: naive
      operate: (operation) =>
        byHand(pool, (client) =>
          // BEGIN … COMMIT
          change((text, values) => client.query(text, values), round, operation),
        ),
      // code: end
    }),
    lockstep: ({ lockstep, round }) => ({
      keyFor: (random) => nameOf(round, random.pick(WALLETS)),
      // code: lockstep
      operate: (operation) =>
        lockstep.transaction({ lock: key`ProveBid:${operation.key}` }, (tx) =>
          change((text, values) => tx.query(text, values), round, operation),
        ),
      // code: end
    }),
  },
  found: (round) => ({ text: FOUND, values: [round] }),
}
