import { key } from 'pg-lockstep'
import { onePerKey } from '../checkers/exactlyOnce.ts'
import { noDeadlock } from '../checkers/noDeadlock.ts'
import { BEGIN_OPENING, FIND, FINISH, FOUND, OPEN, TABLES } from './position.sql.ts'
import { type Operation, type Scenario, type WorkerTools } from './scenario.ts'

/** For so long everybody sees the same signal. */
const SIGNAL_MS = 150
const ORDER_MS = 60

interface Order {
  readonly symbol: string
  readonly orderId: string
  readonly op: string
}

interface Row {
  readonly order_id: string
  readonly state: string
}

/** What everybody wants to open at the same time. */
const symbolNow = (hands: WorkerTools): string => `S${hands.round}.${Math.floor(hands.elapsedMs() / SIGNAL_MS)}`

async function order(hands: WorkerTools, operation: Operation, orderId: string): Promise<void> {
  await pause(ORDER_MS / 2)
  await hands.ask('position', { symbol: operation.key, orderId, op: operation.id } satisfies Order)
  await pause(ORDER_MS / 2)
}

/** A position that two paths want to open: the signal, and the reconciler that comes after it. */
export const position: Scenario = {
  name: 'position',
  title: 'One position, opened by two paths',
  forms: {
    naive: 'looks for the position, and where there is none places the order and inserts it',
    lockstep: 'lockstep.onceExternal(): begin, act at the exchange, finish; a crashed creator is taken over',
  },
  lanes: 2,
  checkers: [onePerKey('position'), noDeadlock],
  tables: TABLES,
  prepare: () => undefined,
  play: {
    naive: (hands) => ({
      keyFor: () => symbolNow(hands),
      async operate(operation) {
        const { rows } = await hands.pool.query<Row>(FIND, [operation.key])
        operation.tell('read', { value: rows[0]?.order_id ?? 'no position' })
        if (rows[0] !== undefined) return rows[0].order_id
        await order(hands, operation, operation.id)
        await hands.pool.query(OPEN, [hands.round, operation.key, operation.id])
        operation.tell('wrote', { value: operation.id })
        return operation.id
      },
    }),
    lockstep: (hands) => ({
      keyFor: () => symbolNow(hands),
      async operate(operation) {
        const { value } = await hands.lockstep.onceExternal<string, string, void>(key`ProvePosition:${operation.key}`, {
          ttlMs: hands.ttlMs,
          waitMs: 15_000,
          signal: hands.signal,
          find: async (tx) => {
            const [row] = (await tx.query<Row>(FIND, [operation.key])).rows
            operation.tell('read', { value: row?.order_id ?? 'no position' })
            if (row === undefined) return undefined
            return row.state === 'open' ? { done: row.order_id } : { pending: row.order_id }
          },
          begin: async (tx) => {
            await tx.query(BEGIN_OPENING, [hands.round, operation.key, operation.id])
            operation.tell('wrote', { value: operation.id })
            return operation.id
          },
          act: (orderId) => order(hands, operation, orderId),
          finish: async (tx, orderId) => {
            await tx.query(FINISH, [operation.key])
            return orderId
          },
        })
        return value
      },
    }),
  },
  // As an exchange does that honours the client's id: the same order again is no other order.
  outside: () => (question, take) => {
    const { symbol, orderId, op } = question as Order
    take({ op, key: symbol, value: orderId })
  },
  found: (round) => ({ text: FOUND, values: [round] }),
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
