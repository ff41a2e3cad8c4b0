import { rowsOutOfOrder } from '../observe/index.ts'
import { rootOf, type Transaction } from '../transactions/index.ts'
import { COMES_BEFORE, ROW_KEY, type RowsWanted } from './rows.sql.ts'

/** What a transaction has locked of one table. */
interface Locked {
  /** The last in order so far: the texts of its key columns. */
  highest: readonly string[]
  /** Where in the code it was locked. */
  stack: string
  readonly rows: Set<string>
}

/** A transaction is remembered as long as somebody has it in hand. */
const remembered = new WeakMap<object, Map<string, Locked>>()

/** Sees, for those who listen to `rows.outOfOrder`, whether a transaction locks rows of one table in an order that can deadlock. */
export class OrderGuard {
  readonly #table: string
  readonly #tables: Map<string, Locked>
  readonly #stack: string

  /** Undefined while nobody listens. */
  static of(tx: Transaction, { table, key }: RowsWanted): OrderGuard | undefined {
    if (!rowsOutOfOrder.hasSubscribers) return undefined
    const root = rootOf(tx)
    let tables = remembered.get(root)
    if (tables === undefined) remembered.set(root, (tables = new Map<string, Locked>()))
    return new OrderGuard(`${table} (${key.join(', ')})`, tables)
  }

  private constructor(table: string, tables: Map<string, Locked>) {
    this.#table = table
    this.#tables = tables
    this.#stack = new Error('lockRows').stack ?? ''
  }

  get #before(): Locked | undefined {
    return this.#tables.get(this.#table)
  }

  /** What the statement has to bring along. */
  get asks(): 'remember' | 'compare' {
    return this.#before === undefined ? 'remember' : 'compare'
  }

  /** The key that rows are compared with. */
  get values(): readonly string[] {
    return this.#before?.highest ?? []
  }

  /** Takes the guard's columns out of the rows, remembers, and tells what came too late. */
  sawRows(rows: readonly Record<string, unknown>[]): void {
    const seen = rows.map((row) => {
      const { [ROW_KEY]: key, [COMES_BEFORE]: before } = row
      delete row[ROW_KEY]
      delete row[COMES_BEFORE]
      return { key: key as string, before: before === 'true' }
    })
    const last = seen.at(-1)
    if (last === undefined) return
    const locked = this.#before
    const highest = JSON.parse(last.key) as string[]
    if (locked === undefined) {
      this.#tables.set(this.#table, { highest, stack: this.#stack, rows: new Set(seen.map(({ key }) => key)) })
      return
    }
    // What is locked already is not waited for a second time.
    const late = seen.find(({ key, before }) => before && !locked.rows.has(key))
    if (late !== undefined) {
      rowsOutOfOrder.publish({
        table: this.#table,
        earlier: { id: locked.highest, stack: locked.stack },
        later: { id: JSON.parse(late.key) as string[], stack: this.#stack },
      })
    }
    for (const { key } of seen) locked.rows.add(key)
    if (!last.before) {
      locked.highest = highest
      locked.stack = this.#stack
    }
  }
}
