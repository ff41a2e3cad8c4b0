import { rowsOutOfOrder } from '../observe/index.ts'
import { isUndone, rootOf, type Transaction } from '../transactions/index.ts'
import type { SeenOrder } from './orders.ts'
import { COMES_BEFORE, type OwnColumns, ROW_KEY, type RowsWanted } from './rows.sql.ts'

/** What one call has locked that comes after all that was locked before. */
interface Locked {
  /** In which transaction or savepoint: what was rolled back is locked no more. */
  readonly tx: Transaction
  readonly table: string
  readonly orderBy: readonly string[]
  /** The last in order: the texts of the columns that it is ordered by. */
  readonly highest: readonly string[]
  /** Where in the code it was locked. */
  readonly stack: string
  readonly rows: ReadonlySet<string>
}

/** A transaction is remembered as long as it is referenced. */
const remembered = new WeakMap<object, Map<string, Locked[]>>()

/** Sees, for those who listen to `rows.outOfOrder`, whether rows of one table are locked in an order that can deadlock. */
export class OrderGuard {
  readonly stack: string
  readonly #tx: Transaction
  readonly #wanted: RowsWanted
  /** In ascending order of their highest rows. */
  readonly #locked: Locked[]
  /** What this transaction has locked of the table in another order. */
  readonly #otherwise: Locked | undefined

  /** Undefined without a listener. */
  static of(tx: Transaction, wanted: RowsWanted): OrderGuard | undefined {
    if (!rowsOutOfOrder.hasSubscribers) return undefined
    const root = rootOf(tx)
    let tables = remembered.get(root)
    if (tables === undefined) remembered.set(root, (tables = new Map<string, Locked[]>()))
    const name = nameOf(wanted)
    const locked = (tables.get(name) ?? []).filter((each) => !isUndone(each.tx))
    tables.set(name, locked)
    const otherwise = [...tables]
      .flatMap(([other, each]) => (other === name ? [] : each))
      .find((each) => each.table === wanted.table && !isUndone(each.tx))
    return new OrderGuard(tx, wanted, locked, otherwise)
  }

  private constructor(tx: Transaction, wanted: RowsWanted, locked: Locked[], otherwise: Locked | undefined) {
    this.#tx = tx
    this.#wanted = wanted
    this.#locked = locked
    this.#otherwise = otherwise
    this.stack = new Error('lockRows').stack ?? ''
  }

  /** What the statement has to bring along. */
  get asks(): 'remember' | 'compare' {
    return this.#locked.length === 0 ? 'remember' : 'compare'
  }

  /** What rows are compared with. */
  get values(): readonly string[] {
    return this.#locked.at(-1)?.highest ?? []
  }

  /** Reports, once for each two orders, that calls of this Lockstep order the rows of the table differently. */
  compareOrders(order: SeenOrder, others: readonly SeenOrder[]): void {
    for (const { columns, stack } of others) {
      const name = columns.join()
      if (order.reported.has(name)) continue
      order.reported.add(name)
      this.#report({ id: [], orderBy: columns, stack }, [])
    }
  }

  /** Remembers what was locked, and reports what came too late. */
  sawRows(rows: readonly OwnColumns[]): void {
    const seen = rows.map((row) => ({ key: row[ROW_KEY] ?? '', before: row[COMES_BEFORE] === 'true' }))
    const [first, last] = [seen[0], seen.at(-1)]
    if (first === undefined || last === undefined) return
    const earlier = this.#locked.at(-1)
    // What is locked already is not waited for a second time.
    const late = seen.find(({ key, before }) => before && !this.#locked.some((each) => each.rows.has(key)))
    if (earlier !== undefined && late !== undefined) {
      this.#report({ id: earlier.highest, orderBy: earlier.orderBy, stack: earlier.stack }, partsOf(late.key))
    }
    if (this.#otherwise !== undefined) {
      const { highest: id, orderBy, stack } = this.#otherwise
      this.#report({ id, orderBy, stack }, partsOf(first.key))
    }
    this.#locked.push({
      tx: this.#tx,
      table: this.#wanted.table,
      orderBy: this.#wanted.order,
      highest: last.before && earlier !== undefined ? earlier.highest : partsOf(last.key),
      stack: last.before && earlier !== undefined ? earlier.stack : this.stack,
      rows: new Set(seen.map(({ key }) => key)),
    })
  }

  #report(earlier: { id: readonly string[]; orderBy: readonly string[]; stack: string }, id: readonly string[]): void {
    const later = { id, orderBy: this.#wanted.order, stack: this.stack }
    rowsOutOfOrder.publish({ table: nameOf(this.#wanted), earlier, later })
  }
}

function nameOf({ table, order }: RowsWanted): string {
  return `${table} (${order.join(', ')})`
}

function partsOf(key: string): string[] {
  return JSON.parse(key) as string[]
}
