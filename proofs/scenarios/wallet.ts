import { key } from 'pg-lockstep'
import { linearizableRegister } from '../checkers/linearizableRegister.ts'
import { noDeadlock } from '../checkers/noDeadlock.ts'
import { byHand, type Scenario } from './scenario.ts'
import { FOUND, PREPARE, READ, TABLES, WRITE } from './wallet.sql.ts'

const WALLETS = [0, 1, 2]
const nameOf = (round: number, wallet: number): string => `wallet ${round}.${wallet}`

/** Read, add one, write: the update that two at once lose. */
export const wallet: Scenario = {
  name: 'wallet',
  title: 'Increments of a wallet',
  forms: {
    naive: 'reads the balance in a transaction and writes it plus one (READ COMMITTED)',
    lockstep: 'the same under lockstep.transaction({ lock }), now READ COMMITTED, now SERIALIZABLE',
  },
  lanes: 2,
  checkers: [linearizableRegister, noDeadlock],
  tables: TABLES,
  prepare: (round) => ({ text: PREPARE, values: [round, WALLETS.map((each) => nameOf(round, each))] }),
  play: {
    naive: ({ pool, round }) => ({
      keyFor: (random) => nameOf(round, random.pick(WALLETS)),
      operate: (operation) =>
        byHand(pool, async (client) => {
          const { rows } = await client.query<{ balance: number }>(READ, [operation.key])
          const balance = rows[0]?.balance ?? 0
          operation.tell('read', { value: balance })
          await client.query(WRITE, [operation.key, balance + 1])
          operation.tell('wrote', { value: balance + 1 })
          return balance + 1
        }),
    }),
    lockstep: ({ lockstep, round }) => ({
      keyFor: (random) => nameOf(round, random.pick(WALLETS)),
      operate: (operation) =>
        lockstep.transaction(
          {
            lock: key`ProveWallet:${operation.key}`,
            isolation: operation.random.chance(0.5) ? 'serializable' : 'read committed',
          },
          async (tx) => {
            operation.tell('granted')
            const { rows } = await tx.query<{ balance: number }>(READ, [operation.key])
            const balance = rows[0]?.balance ?? 0
            operation.tell('read', { value: balance })
            await tx.query(WRITE, [operation.key, balance + 1])
            operation.tell('wrote', { value: balance + 1 })
            return balance + 1
          },
        ),
    }),
  },
  found: (round) => ({ text: FOUND, values: [round] }),
}
