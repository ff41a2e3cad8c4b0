/** How strongly rows are locked, from `update` (no other session can lock or change them) to `keyShare` (they cannot be deleted). */
export type RowLockMode = 'update' | 'noKeyUpdate' | 'share' | 'keyShare'

const LOCKING: Readonly<Record<RowLockMode, string>> = {
  update: 'UPDATE',
  noKeyUpdate: 'NO KEY UPDATE',
  share: 'SHARE',
  keyShare: 'KEY SHARE',
}

/** What happens if another session holds a row. */
export type UnlessLocked = 'wait' | 'skip' | 'fail'

const OTHERWISE: Readonly<Record<UnlessLocked, string>> = { wait: '', skip: ' SKIP LOCKED', fail: ' NOWAIT' }

/** What the statement is about; every name is quoted already. */
export interface RowsWanted {
  readonly table: string
  readonly key: readonly string[]
  /** By which columns the rows are sorted before they are locked. */
  readonly order: readonly string[]
  readonly columns: readonly string[] | undefined
}

/** Which of the given ids, from 1, a row was found by: several where the server holds two of them for equal. */
export const PLACES = 'lockstepplaces'
/** What the row is sorted by, as text, for the guard. */
export const ROW_KEY = 'lockstepkey'
/** Whether the row comes before the given values, for the guard. */
export const COMES_BEFORE = 'lockstepbefore'

/** What is ours in a row; the last two only for the guard. */
export type OwnColumns = Readonly<Partial<Record<string, string | null>>>

/** The names of the columns that are ours. */
export const OWN_COLUMNS = [PLACES, ROW_KEY, COMES_BEFORE]

function shownColumns({ columns }: RowsWanted): readonly string[] {
  return columns === undefined ? ['t.*'] : columns.map((column) => `t.${column}`)
}

function given({ table, key }: RowsWanted): string {
  // The subselect is never run: it lends its type to the parameter.
  const arrays = key.map((column, index) => `COALESCE($${index + 1}, ARRAY(SELECT ${column} FROM ${table} LIMIT 0))`)
  const names = key.map((_, index) => `k${index}`)
  return `unnest(${arrays.join(', ')}) WITH ORDINALITY AS given(${names.join(', ')}, place)`
}

function sorted({ order }: RowsWanted): string {
  return order.map((column) => `t.${column}`).join(', ')
}

function match({ key }: RowsWanted): string {
  return key.map((column, index) => `t.${column} = given.k${index}`).join(' AND ')
}

/**
 * The same for a key of one column and few ids, each found under the first place at which it stands: 194 µs for 2 rows and 235 µs
 * for 17, where the general form takes 322 µs and 404 µs, most of it planning the join. From about a hundred ids on the general
 * form is the quicker one: `array_position` looks through the list for each row. The parameter has the type of the column here, too.
 */
export function lockFewRowsInOrder(wanted: RowsWanted, mode: RowLockMode, unlessLocked: UnlessLocked): string {
  const column = `t.${wanted.key[0] ?? ''}`
  return `SELECT ${[`array_position($1, ${column})::text AS ${PLACES}`, ...shownColumns(wanted)].join(', ')}
  FROM ${wanted.table} AS t
 WHERE ${column} = ANY($1)
 ORDER BY ${sorted(wanted)}
   FOR ${LOCKING[mode]} OF t${OTHERWISE[unlessLocked]}`
}

/**
 * Locks the rows in ascending order. Parameters: an array for each column of the key; with `guard: 'compare'` then also what rows are
 * compared with, one value for each column of the order.
 */
export function lockRowsInOrder(
  wanted: RowsWanted,
  mode: RowLockMode,
  unlessLocked: UnlessLocked,
  guard: 'off' | 'remember' | 'compare',
): string {
  const { table, key, order } = wanted
  const names = key.map((_, index) => `k${index}`).join(', ')
  const ordered = sorted(wanted)
  const watched = [
    ...(guard === 'off'
      ? []
      : [`jsonb_build_array(${order.map((column) => `t.${column}::text`).join(', ')})::text AS ${ROW_KEY}`]),
    ...(guard === 'compare'
      ? [`((${ordered}) < (${order.map((_, n) => `$${key.length + n + 1}`).join(', ')}))::text AS ${COMES_BEFORE}`]
      : []),
  ]
  return `SELECT ${[`given.places AS ${PLACES}`, ...watched, ...shownColumns(wanted)].join(', ')}
  FROM (SELECT ${names}, string_agg(place::text, ',') AS places FROM ${given(wanted)} GROUP BY ${names}) AS given
  JOIN ${table} AS t ON ${match(wanted)}
 ORDER BY ${ordered}
   FOR ${LOCKING[mode]} OF t${OTHERWISE[unlessLocked]}`
}

/** Rows that are locked already, without a column of ours, in the same order. */
export function showRows(wanted: RowsWanted): string {
  return `SELECT ${shownColumns(wanted).join(', ')}
  FROM ${wanted.table} AS t
 WHERE EXISTS (SELECT FROM ${given(wanted)} WHERE ${match(wanted)})
 ORDER BY ${wanted.key.map((column) => `t.${column}`).join(', ')}`
}

/** Which of the given ids, from 1, exist: of those that were skipped, the ones that another session holds. */
export function existingIds(wanted: RowsWanted): string {
  return `SELECT place::text AS place FROM ${given(wanted)} WHERE EXISTS (SELECT FROM ${wanted.table} AS t WHERE ${match(wanted)})`
}
