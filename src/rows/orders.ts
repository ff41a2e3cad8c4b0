import { ownerOf, type Transaction } from '../transactions/index.ts'
import type { RowsWanted } from './rows.sql.ts'

/**
 * By which columns the calls of one Lockstep order the rows of a table. Two calls that lock several rows in two different orders can
 * wait for each other in a circle, each of them in perfect order by itself.
 */
export interface SeenOrder {
  readonly columns: readonly string[]
  /** Where the first such call was made; empty if the guard had no listener then. */
  readonly stack: string
  /** Other orders that the guard has reported together with it. */
  readonly reported: Set<string>
}

/** Of each Lockstep: by table, then by columns. */
const seen = new WeakMap<object, Map<string, Map<string, SeenOrder>>>()

/** Tables that are made at run time must not fill the memory. */
const MAX_TABLES = 1000
const MAX_ORDERS = 8

/** Remembers that several rows were locked in this order. `stack`: where, if there is a listener. */
export function noteOrder(tx: Transaction, { table, order }: RowsWanted, stack = ''): SeenOrder | undefined {
  const owner = ownerOf(tx)
  let tables = seen.get(owner)
  if (tables === undefined) seen.set(owner, (tables = new Map()))
  let orders = tables.get(table)
  if (orders === undefined) {
    if (tables.size >= MAX_TABLES) tables.clear()
    tables.set(table, (orders = new Map()))
  }
  const name = order.join()
  let known = orders.get(name)
  if (known === undefined && orders.size < MAX_ORDERS) {
    orders.set(name, (known = { columns: order, stack, reported: new Set() }))
  }
  return known
}

/** The other orders in which this Lockstep locks several rows of the table. */
export function otherOrders(tx: Transaction, { table, order }: RowsWanted): SeenOrder[] {
  const orders = seen.get(ownerOf(tx))?.get(table)
  if (orders === undefined) return []
  const name = order.join()
  return [...orders].filter(([other]) => other !== name).map(([, known]) => known)
}
