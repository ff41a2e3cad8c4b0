import { randomUUID } from 'node:crypto'
import { beforeAll, beforeEach } from 'vitest'
import type { OnceExternalOptions } from '../../../src/index.ts'
import type { Workbench } from './workbench.ts'

/** Positions that are opened at an exchange, for `onceExternal`. */
export interface Positions {
  /** What the exchange has seen: the ids of its orders. */
  readonly orders: Set<string>
  /** How the position of a symbol is opened: its value is the order's id. */
  readonly position: (symbol: string) => OnceExternalOptions<string, string, boolean>
  readonly stateOf: (symbol: string) => Promise<unknown>
}

/** Makes their table in the bench's database; it is emptied before each test. */
export function positionsOn(bench: Workbench): Positions {
  const orders = new Set<string>()
  beforeAll(() =>
    bench.admin.query('CREATE TABLE positions (symbol text PRIMARY KEY, order_id text NOT NULL, state text NOT NULL)'),
  )
  beforeEach(async () => {
    orders.clear()
    await bench.admin.query('TRUNCATE positions')
  })
  return {
    orders,
    position: (symbol) => ({
      ttlMs: 3000,
      find: async (tx) => {
        const { rows } = await tx.query<{ id: string; state: string }>(
          'SELECT order_id AS id, state FROM positions WHERE symbol = $1',
          [symbol],
        )
        const [row] = rows
        if (row === undefined) return undefined
        return row.state === 'open' ? { done: row.id } : { pending: row.id }
      },
      begin: async (tx) => {
        const id = randomUUID()
        await tx.query(`INSERT INTO positions VALUES ($1, $2, 'opening')`, [symbol, id])
        return id
      },
      act: async (id) => Promise.resolve(orders.add(id).has(id)),
      finish: async (tx, id) => {
        await tx.query(`UPDATE positions SET state = 'open' WHERE order_id = $1`, [id])
        return id
      },
      abandon: async (tx, id) => {
        await tx.query('DELETE FROM positions WHERE order_id = $1', [id])
      },
    }),
    stateOf: async (symbol) =>
      (await bench.admin.query('SELECT state FROM positions WHERE symbol = $1', [symbol])).rows,
  }
}
