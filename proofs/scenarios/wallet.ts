import { key } from 'pg-lockstep'
import { linearizableRegister } from '../checkers/linearizableRegister.ts'
import { noDeadlock, noSerializationFailure } from '../checkers/noServerError.ts'
import { byHand, type Scenario } from './scenario.ts'
import { BEGIN_AND_LOCK, FOUND, PREPARE, READ, TABLES, WRITE } from './wallet.sql.ts'

/** One: of two in a small table, SERIALIZABLE transactions fail although they have nothing in common. */
const nameOf = (round: number): string => `wallet ${round}`

/** Read, add one, write: the update that two at once lose. */
export const wallet: Scenario = {
  name: 'wallet',
  title: 'Increments of a wallet',
  forms: {
    naive: 'reads the balance and writes it plus one: READ COMMITTED, or SERIALIZABLE with the lock inside of BEGIN',
    lockstep: 'the same under lockstep.transaction({ lock }), now READ COMMITTED, now SERIALIZABLE',
  },
  lanes: 2,
  checkers: [linearizableRegister, noSerializationFailure, noDeadlock],
  naiveBreaks: [linearizableRegister.name, noSerializationFailure.name],
  tables: TABLES,
  prepare: (round) => ({ text: PREPARE, values: [round, nameOf(round)] }),
  play: {
    naive: ({ pool, round }) => ({
      keyFor: () => nameOf(round),
      operate: (operation) =>
        byHand(
          pool,
          async (client) => {
            const { rows } = await client.query<{ balance: number }>(READ, [operation.key])
            const balance = rows[0]?.balance ?? 0
            operation.tell('read', { value: balance })
            await client.query(WRITE, [operation.key, balance + 1])
            operation.tell('wrote', { value: balance + 1 })
            return balance + 1
          },
          operation.random.chance(0.5) ? BEGIN_AND_LOCK : undefined,
        ),
    }),
    lockstep: ({ lockstep, round }) => ({
      keyFor: () => nameOf(round),
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
