import { key } from 'pg-lockstep'
import { exactlyOnce } from '../checkers/exactlyOnce.ts'
import { linearizableRegister } from '../checkers/linearizableRegister.ts'
import { noDeadlock } from '../checkers/noServerError.ts'
import { ADD, FOUND, PREPARE, RECORD, TABLES } from './combine.sql.ts'
import { byHand, type Operation, type Scenario } from './scenario.ts'

const ACCOUNTS = [0, 1]
const TRIES = 5
const nameOf = (round: number, account: number): string => `hot ${round}.${account}`

/** Deposits into one hot account, many at a time. */
export const combine: Scenario = {
  name: 'combine',
  title: 'Deposits into a hot account',
  forms: {
    naive: 'tries again after an error, also after a COMMIT of which no answer came',
    lockstep: 'lockstep.combine(): many callers, one transaction; a COMMIT without an answer is looked into',
  },
  lanes: 4,
  checkers: [exactlyOnce, linearizableRegister, noDeadlock],
  tables: TABLES,
  prepare: (round) => ({ text: PREPARE, values: [round, ACCOUNTS.map((each) => nameOf(round, each))] }),
  play: {
    naive: ({ pool, round }) => ({
      keyFor: (random) => nameOf(round, random.pick(ACCOUNTS)),
      async operate(operation) {
        for (let tries = 1; ; tries++) {
          try {
            return await byHand(pool, async (client) => {
              const { rows } = await client.query<{ balance: number }>(ADD, [operation.key, 1])
              await client.query(RECORD, [round, operation.key, [operation.id]])
              operation.tell('wrote', { value: rows[0]?.balance ?? 0, note: `try ${tries}` })
              return rows[0]?.balance
            })
          } catch (error) {
            if (tries === TRIES) throw error
          }
        }
      },
    }),
    lockstep: ({ lockstep, round }) => {
      const deposit = lockstep.combine<Operation, number>({
        key: (operation) => key`ProveAccount:${operation.key}`,
        run: async (tx, operations) => {
          const account = (operations[0] as Operation).key
          const { rows } = await tx.query<{ balance: number }>(ADD, [account, operations.length])
          const before = (rows[0]?.balance ?? 0) - operations.length
          for (const [index, operation] of operations.entries()) operation.tell('wrote', { value: before + index + 1 })
          await tx.queryAtCommit(RECORD, [round, account, operations.map(({ id }) => id)])
          return operations.map((_, index) => before + index + 1)
        },
      })
      return { keyFor: (random) => nameOf(round, random.pick(ACCOUNTS)), operate: (operation) => deposit(operation) }
    },
  },
  found: (round) => ({ text: FOUND, values: [round] }),
}
