import { rowsOutOfOrder } from '../observe/index.ts'
import { isUndone, rootOf, type Transaction } from '../transactions/index.ts'
import { COMES_BEFORE, type OwnColumns, ROW_KEY, type RowsWanted } from './rows.sql.ts'

/** What one call has locked that comes after all that was locked before. */
interface Locked {
  /** In which transaction or savepoint: what was rolled back is locked no more. */
  readonly tx: Transaction
  /** The last in order: the texts of its key columns. */
  readonly highest: readonly string[]
  /** Where in the code it was locked. */
  readonly stack: string
  readonly rows: ReadonlySet<string>
}

/** A transaction is remembered as long as somebody has it in hand. */
const remembered = new WeakMap<object, Map<string, Locked[]>>()

/** Sees, for those who listen to `rows.outOfOrder`, whether a transaction locks rows of one table in an order that can deadlock. */
export class OrderGuard {
  readonly #tx: Transaction
  readonly #table: string
  /** In ascending order of their highest rows. */
  readonly #locked: Locked[]
  readonly #stack: string

  /** Undefined while nobody listens. */
  static of(tx: Transaction, { table, key }: RowsWanted): OrderGuard | undefined {
    if (!rowsOutOfOrder.hasSubscribers) return undefined
    const root = rootOf(tx)
    let tables = remembered.get(root)
    if (tables === undefined) remembered.set(root, (tables = new Map<string, Locked[]>()))
    const name = `${table} (${key.join(', ')})`
    const locked = (tables.get(name) ?? []).filter((each) => !isUndone(each.tx))
    tables.set(name, locked)
    return new OrderGuard(tx, name, locked)
  }

  private constructor(tx: Transaction, table: string, locked: Locked[]) {
    this.#tx = tx
    this.#table = table
    this.#locked = locked
    this.#stack = new Error('lockRows').stack ?? ''
  }

  /** What the statement has to bring along. */
  get asks(): 'remember' | 'compare' {
    return this.#locked.length === 0 ? 'remember' : 'compare'
  }

  /** The key that rows are compared with. */
  get values(): readonly string[] {
    return this.#locked.at(-1)?.highest ?? []
  }

  /** Remembers what was locked, and tells what came too late. */
  sawRows(rows: readonly OwnColumns[]): void {
    const seen = rows.map((row) => ({ key: row[ROW_KEY] ?? '', before: row[COMES_BEFORE] === 'true' }))
    const last = seen.at(-1)
    if (last === undefined) return
    const earlier = this.#locked.at(-1)
    // What is locked already is not waited for a second time.
    const late = seen.find(({ key, before }) => before && !this.#locked.some((each) => each.rows.has(key)))
    if (earlier !== undefined && late !== undefined) {
      rowsOutOfOrder.publish({
        table: this.#table,
        earlier: { id: earlier.highest, stack: earlier.stack },
        later: { id: JSON.parse(late.key) as string[], stack: this.#stack },
      })
    }
    const locked: Locked = {
      tx: this.#tx,
      highest: last.before && earlier !== undefined ? earlier.highest : (JSON.parse(last.key) as string[]),
      stack: last.before && earlier !== undefined ? earlier.stack : this.#stack,
      rows: new Set(seen.map(({ key }) => key)),
    }
    this.#locked.push(locked)
  }
}
