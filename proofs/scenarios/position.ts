import { key } from 'pg-lockstep'
import { CREATED, onePerKey } from '../checkers/exactlyOnce.ts'
import { noDeadlock } from '../checkers/noServerError.ts'
import { BEGIN_OPENING, FIND, FINISH, FOUND, OPEN, TABLES } from './position.sql.ts'
import { type Operation, type Scenario, type WorkerTools } from './scenario.ts'

/** How long all callers see the same signal. */
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

/** What all callers open at the same time: one at the exchange, the next in the books alone. */
function symbolNow(hands: WorkerTools): string {
  const signal = Math.floor(hands.elapsedMs() / SIGNAL_MS)
  return `${signal % 2 === 0 ? 'S' : 'B'}${hands.round}.${signal}`
}

const isAtExchange = ({ key: symbol }: Operation): boolean => symbol.startsWith('S')

async function order(hands: WorkerTools, operation: Operation, orderId: string): Promise<void> {
  await pause(ORDER_MS / 2)
  await hands.ask('position', { symbol: operation.key, orderId, op: operation.id } satisfies Order)
  await pause(ORDER_MS / 2)
}

function openAtExchange(hands: WorkerTools, operation: Operation): Promise<{ value: string; created: boolean }> {
  // code: lockstep
  return hands.lockstep.onceExternal<string, string, void>(key`ProvePosition:${operation.key}`, {
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
  // code: end
}

/** What stands in the database alone, in one transaction. */
function openInBooks(hands: WorkerTools, operation: Operation): Promise<{ value: string; created: boolean }> {
  return hands.lockstep.once(key`ProvePosition:${operation.key}`, {
    signal: hands.signal,
    find: async (tx) => {
      const [row] = (await tx.query<Row>(FIND, [operation.key])).rows
      operation.tell('read', { value: row?.order_id ?? 'no position' })
      return row?.order_id
    },
    create: async (tx) => {
      await tx.query(OPEN, [hands.round, operation.key, operation.id])
      operation.tell('wrote', { value: operation.id })
      return operation.id
    },
  })
}

/** A position that two paths want to open: the signal, and the reconciler that comes after it. */
export const position: Scenario = {
  name: 'position',
  title: 'One position, opened by two paths',
  forms: {
    naive: 'looks for the position, and where there is none places the order and inserts it',
    lockstep: 'lockstep.onceExternal(): begin, act, finish, or taken over; without an exchange lockstep.once()',
  },
  lanes: 2,
  checkers: [onePerKey('position'), noDeadlock],
  tables: TABLES,
  prepare: () => undefined,
  play: {
    naive: (hands) => ({
      keyFor: () => symbolNow(hands),
      // code: naive
      async operate(operation) {
        const { rows } = await hands.pool.query<Row>(FIND, [operation.key])
        operation.tell('read', { value: rows[0]?.order_id ?? 'no position' })
        if (rows[0] !== undefined) return rows[0].order_id
        if (isAtExchange(operation)) await order(hands, operation, operation.id)
        await hands.pool.query(OPEN, [hands.round, operation.key, operation.id])
        operation.tell('wrote', { value: operation.id })
        return operation.id
      },
      // code: end
    }),
    lockstep: (hands) => ({
      keyFor: () => symbolNow(hands),
      async operate(operation) {
        const { value, created } = isAtExchange(operation)
          ? await openAtExchange(hands, operation)
          : await openInBooks(hands, operation)
        return created ? { value, note: CREATED } : value
      },
    }),
  },
  // As an exchange does that honors the client's id: the same order again is no other order.
  outside: () => (question, take) => {
    const { symbol, orderId, op } = question as Order
    take({ op, key: symbol, value: orderId })
  },
  found: (round) => ({ text: FOUND, values: [round] }),
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
