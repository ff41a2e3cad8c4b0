import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, RowsDeadlockedError, RowsLockedError, RowsMissingError } from '../errors.ts'
import { codeOf, DEADLOCK_DETECTED, LOCK_NOT_AVAILABLE, quoteIdentifier } from '../postgres/index.ts'
import { checkTransaction, queryWithOwnValues, readText, type Transaction } from '../transactions/index.ts'
import { OrderGuard } from './orderGuard.ts'
import { noteOrder, otherOrders, type SeenOrder } from './orders.ts'
import { type GivenIds, givenIds, nameOf, type RowId, shownId } from './rowIds.ts'
import {
  existingIds,
  lockFewRowsInOrder,
  lockRowsInOrder,
  OWN_COLUMNS,
  type OwnColumns,
  PLACES,
  type RowLockMode,
  type RowsWanted,
  showRows,
  type UnlessLocked,
} from './rows.sql.ts'

/** A table, `accounts` or `ledger.accounts`; the object form is for names with a dot in them. */
export type TableName = string | { readonly schema?: string; readonly table: string }

/** What every form of `LockRowsOptions` has. */
export interface LockRowsCommon {
  /** The column, or columns, that name a row. They must be unique together. Default `id`. */
  readonly key?: string | readonly string[]
  /**
   * The column, or columns, in whose order the rows are locked. They must be unique together. Default: `key`. Two orders of one table
   * can deadlock: where rows are found by another column than elsewhere, state the order of the others, most often the primary key.
   */
  readonly orderBy?: string | readonly string[]
  /** Default `update`. */
  readonly mode?: RowLockMode
  /** The columns to bring back. Default: all. */
  readonly columns?: readonly string[]
  /** Rows that do not exist stand in `missing` instead of being an error. */
  readonly allowMissing?: boolean
}

/** Options of `lockRows()`. `skipLocked` leaves out what others hold, `noWait` fails on it. */
export type LockRowsOptions = LockRowsCommon &
  (
    | { readonly skipLocked?: boolean; readonly noWait?: false }
    | { readonly skipLocked?: false; readonly noWait?: boolean }
  )

const LOCK_ROWS_OPTIONS: OptionNames<LockRowsOptions> = {
  key: 'never undefined',
  orderBy: 'never undefined',
  mode: true,
  columns: true,
  allowMissing: true,
  skipLocked: true,
  noWait: true,
}

/** The locked rows, in the order in which they were locked. */
export interface LockedRows<Row> extends Array<Row> {
  /** The row of one of the ids that were asked for. */
  get(id: RowId): Row | undefined
  /** Ids of which there is no row; only where `allowMissing` is set. */
  readonly missing: readonly RowId[]
  /** Ids of rows that exist and could not be had, because another session holds them; only where `skipLocked` is set. */
  readonly skipped: readonly RowId[]
}

const MODES: readonly string[] = ['update', 'noKeyUpdate', 'share', 'keyShare'] satisfies RowLockMode[]

/** An open transaction of a Lockstep, whatever events it knows. */
export type RowsTransaction = Pick<Transaction, 'isolation' | 'query'>

/**
 * Locks rows in ascending order of their key, or of `orderBy`, whatever the order of the ids, in one statement.
 *
 * @example
 * const accounts = await lockRows<Account>(tx, 'accounts', [from, to])
 * const source = accounts.get(from)
 */
export async function lockRows<Row extends object = Record<string, unknown>>(
  tx: RowsTransaction,
  table: TableName,
  ids: readonly RowId[],
  options: LockRowsOptions = {},
): Promise<LockedRows<Row>> {
  checkOptions('lockRows()', options, LOCK_ROWS_OPTIONS)
  checkTransaction('lockRows()', tx)
  const wanted = rowsWanted(table, options)
  const mode = checkMode(options.mode)
  const unlessLocked = checkWaiting(options)
  const given = givenIds(ids, wanted.key.length)
  if (given.unique.length === 0) return lockedRows([], new Map(), wanted.key.length, [], [])
  // Only who waits can be part of a circle.
  const waits = unlessLocked === 'wait'
  const guard = waits ? OrderGuard.of(tx as Transaction, wanted) : undefined
  if (waits && given.unique.length > 1) {
    const order = noteOrder(tx as Transaction, wanted, guard?.stack)
    if (order !== undefined) guard?.compareOrders(order, otherOrders(tx as Transaction, wanted))
  }
  let found: Found<Row> | undefined
  let asked = false
  // Whether our columns are found in the caller's rows.
  let together = true
  if (guard === undefined && unlessLocked !== 'skip' && wanted.key.length === 1 && given.unique.length <= FEW) {
    asked = true
    const rows = await send(tx, wanted, lockFewRowsInOrder(wanted, mode, unlessLocked), given.columns)
    const ours = takeOurs(rows)
    together = ours !== undefined
    found = ours && byIds(given, rows as Row[], ours)
    // Two names of one row, such as a uuid in capitals, stand under the first alone: that takes the general form.
    if (found !== undefined && found.byName.size < given.unique.length) found = undefined
  }
  const asks = guard?.asks ?? 'off'
  const values = guard === undefined ? given.columns : [...given.columns, ...guard.values]
  if (found === undefined && together) {
    // After a first statement, it does not wait: a row that has appeared since then may come before those that are locked.
    const text = lockRowsInOrder(wanted, mode, asked ? 'skip' : unlessLocked, asks)
    const rows = await send(tx, wanted, text, values)
    const ours = takeOurs(rows)
    if (ours !== undefined) {
      guard?.sawRows(ours)
      found = byIds(given, rows as Row[], ours)
    }
  }
  if (found === undefined) {
    // The pool's owner has the driver change rows in a way that ours are not found in them: the two are asked for apart.
    const text = lockRowsInOrder({ ...wanted, columns: [] }, mode, 'skip', asks)
    const { rows: ours } = await readText(tx, text, values)
    guard?.sawRows(ours)
    const locked = givenIds(
      ours.map((row) => given.unique[placesIn(row)[0] ?? 0] as RowId),
      wanted.key.length,
    )
    const rows = locked.unique.length === 0 ? [] : await send(tx, wanted, showRows(wanted), locked.columns)
    found = byIds(given, rows as Row[], ours)
  }
  const { byName } = found
  const absent = given.unique.filter((_, index) => !byName.has(given.names[index] ?? ''))
  const skipped = absent.length > 0 && unlessLocked === 'skip' ? await thoseThatExist(tx, wanted, given, absent) : []
  const missing = absent.filter((id) => !skipped.includes(id))
  if (missing.length > 0 && options.allowMissing !== true) throw rowsMissing(wanted, missing, given.unique.length)
  return lockedRows(found.rows, byName, wanted.key.length, missing, skipped)
}

/** Up to this number of ids, searching their list for each row is cheaper than joining them. */
const FEW = 100

interface Found<Row> {
  readonly rows: Row[]
  readonly byName: ReadonlyMap<string, Row>
}

async function send(
  tx: RowsTransaction,
  wanted: RowsWanted,
  text: string,
  values: readonly string[],
): Promise<Record<string, unknown>[]> {
  try {
    return (await queryWithOwnValues<Record<string, unknown>>(tx, text, values)).rows
  } catch (error) {
    if (codeOf(error) === DEADLOCK_DETECTED) throw rowsDeadlocked(wanted, otherOrders(tx as Transaction, wanted), error)
    throw codeOf(error) === LOCK_NOT_AVAILABLE ? rowsLocked(wanted, error) : error
  }
}

/** Takes our own columns out of the rows. Undefined where they are not what we had sent for: then the rows are left as they are. */
function takeOurs(rows: readonly Record<string, unknown>[]): OwnColumns[] | undefined {
  // postgres.js may be configured to begin names with a capital.
  const names = Object.keys(rows[0] ?? {}).filter((name) => OWN_COLUMNS.includes(name.toLowerCase()))
  const ours = rows.map((row) => Object.fromEntries(names.map((name) => [name.toLowerCase(), row[name]])))
  if (!ours.every(isOurs)) return undefined
  for (const row of rows) for (const name of names) delete row[name]
  return ours
}

const SEVERAL_PLACES = /^[1-9]\d*(?:,[1-9]\d*)*$/

function isOurs(row: Record<string, unknown>): row is OwnColumns {
  const { [PLACES]: places } = row
  return typeof places === 'string' && SEVERAL_PLACES.test(places) && Object.values(row).every(isText)
}

function isText(value: unknown): boolean {
  return typeof value === 'string'
}

/** By which of the given ids a row was found, counted from 0. */
function placesIn(ours: OwnColumns): number[] {
  return (ours[PLACES] ?? '').split(',').map((place) => Number(place) - 1)
}

/** Finds each row by the ids that it was asked for with. */
function byIds<Row>(given: GivenIds, rows: Row[], ours: readonly OwnColumns[]): Found<Row> {
  const byName = new Map<string, Row>()
  rows.forEach((row, index) => {
    for (const place of placesIn(ours[index] ?? {})) byName.set(given.names[place] ?? '', row)
  })
  return { rows, byName }
}

/** Those of the ids that were not found which another session holds. */
async function thoseThatExist(
  tx: RowsTransaction,
  wanted: RowsWanted,
  { unique, columns }: GivenIds,
  absent: readonly RowId[],
): Promise<RowId[]> {
  const { rows } = await readText(tx, existingIds(wanted), columns)
  const existing = new Set(rows.map(({ place }) => unique[Number(place) - 1]))
  return absent.filter((id) => existing.has(id))
}

function lockedRows<Row>(
  rows: Row[],
  found: ReadonlyMap<string, Row>,
  width: number,
  missing: readonly RowId[],
  skipped: readonly RowId[],
): LockedRows<Row> {
  // Not enumerable: the rows stay what they look like, a list.
  return Object.defineProperties([...rows], {
    get: { value: (id: RowId) => found.get(nameOf(id, width)) },
    missing: { value: missing },
    skipped: { value: skipped },
  }) as LockedRows<Row>
}

function rowsWanted(table: TableName, options: LockRowsOptions): RowsWanted {
  const key = columnList('key', options.key ?? 'id')
  if (options.columns?.length === 0) {
    throw new InvalidOptionError('`columns` is an empty list.', { advice: 'Name columns, or leave it out for all.' })
  }
  return {
    table: quotedTable(table),
    key,
    order: options.orderBy === undefined ? key : columnList('orderBy', options.orderBy),
    columns: options.columns?.map((column) => quoted(column, 'column')),
  }
}

function columnList(option: string, given: string | readonly string[]): string[] {
  const columns = typeof given === 'string' ? [given] : given
  if (columns.length === 0)
    throw new InvalidOptionError(`\`${option}\` is an empty list.`, { advice: 'Name its columns.' })
  return columns.map((column) => quoted(column, 'column'))
}

function quotedTable(table: unknown): string {
  if (typeof table === 'string')
    return table
      .split('.')
      .map((part) => quoted(part, 'table'))
      .join('.')
  const { schema, table: name } = (table ?? {}) as { schema?: unknown; table?: unknown }
  return schema === undefined ? quoted(name, 'table') : `${quoted(schema, 'schema')}.${quoted(name, 'table')}`
}

function quoted(name: unknown, kind: string): string {
  if (typeof name === 'string' && name !== '' && !name.includes('\0')) return quoteIdentifier(name)
  throw new InvalidOptionError(`lockRows() was given ${JSON.stringify(name) ?? 'nothing'} for the name of a ${kind}.`, {
    advice: "Pass 'accounts', 'ledger.accounts' or { schema, table }, and names of columns.",
  })
}

function checkMode(mode: unknown = 'update'): RowLockMode {
  if (MODES.includes(mode as RowLockMode)) return mode as RowLockMode
  throw new InvalidOptionError(`Unknown mode ${String(mode)}.`, { advice: `Use one of ${MODES.join(', ')}.` })
}

function checkWaiting({ skipLocked, noWait }: { skipLocked?: unknown; noWait?: unknown }): UnlessLocked {
  if (skipLocked === true && noWait === true) {
    throw new InvalidOptionError('`skipLocked` and `noWait` were both given.', { advice: 'Use one of the two.' })
  }
  if (skipLocked === true) return 'skip'
  return noWait === true ? 'fail' : 'wait'
}

const MAX_SHOWN = 10

function rowsMissing({ table }: RowsWanted, missing: readonly RowId[], asked: number): RowsMissingError {
  const more = missing.length > MAX_SHOWN ? `, … (${missing.length})` : ''
  const shown = missing.slice(0, MAX_SHOWN).map(shownId).join(', ') + more
  return new RowsMissingError(`Of ${asked} rows of ${table}, there is none for ${shown}.`, {
    advice: 'Check the ids, or set allowMissing and look at `missing`.',
    table,
    missing,
  })
}

function rowsLocked({ table }: RowsWanted, cause: unknown): RowsLockedError {
  return new RowsLockedError(`A row of ${table} is locked by another session.`, {
    advice:
      'The transaction has failed: let this error out and ask again later, or wait longer: no noWait, a larger lock_timeout.',
    table,
    cause,
  })
}

function rowsDeadlocked(
  { table, order }: RowsWanted,
  others: readonly SeenOrder[],
  cause: unknown,
): RowsDeadlockedError {
  const [ours, ...theirs] = [order, ...others.map(({ columns }) => columns)].map((columns) => `(${columns.join(', ')})`)
  const known = theirs.length === 0 ? '' : ` This Lockstep also locks its rows in the order of ${theirs.join(' and ')}.`
  return new RowsDeadlockedError(
    `lockRows() met a deadlock on ${table}, whose rows it locks in the order of ${ours}.${known}`,
    {
      advice:
        theirs.length === 0
          ? 'transaction() tries again. Lock the rows of a table in one order everywhere, and before any UPDATE of several rows.'
          : 'transaction() tries again. State one order everywhere, with `orderBy`.',
      table,
      orders: [ours as string, ...theirs],
      cause,
    },
  )
}
