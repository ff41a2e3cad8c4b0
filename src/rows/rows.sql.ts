/** How strongly rows are locked, from `update` (nobody else may lock or change them) to `keyShare` (they may not be deleted). */
export type RowLockMode = 'update' | 'noKeyUpdate' | 'share' | 'keyShare'

const LOCKING: Readonly<Record<RowLockMode, string>> = {
  update: 'UPDATE',
  noKeyUpdate: 'NO KEY UPDATE',
  share: 'SHARE',
  keyShare: 'KEY SHARE',
}

/** What the statement is about; every name is quoted already. */
export interface RowsWanted {
  readonly table: string
  readonly key: readonly string[]
  readonly columns: readonly string[] | undefined
}

/** Which of the given ids, from 1, a row was found by: several where the server holds two of them for equal. */
export const PLACES = 'lockstepplaces'
/** The row's key as text, for the guard. */
export const ROW_KEY = 'lockstepkey'
/** Whether the row comes before the given key, for the guard. */
export const COMES_BEFORE = 'lockstepbefore'

function given({ table, key }: RowsWanted): string {
  // The subselect is never run: it lends its type to the parameter.
  const arrays = key.map((column, index) => `COALESCE($${index + 1}, ARRAY(SELECT ${column} FROM ${table} LIMIT 0))`)
  const names = key.map((_, index) => `k${index}`)
  return `unnest(${arrays.join(', ')}) WITH ORDINALITY AS given(${names.join(', ')}, place)`
}

function match({ key }: RowsWanted): string {
  return key.map((column, index) => `t.${column} = given.k${index}`).join(' AND ')
}

/**
 * Locks the rows in ascending order of the key. Parameters: an array for each column of the key; with `guard: 'compare'` then also
 * the key, one value for each column, that rows are compared with.
 */
export function lockRowsInOrder(
  wanted: RowsWanted,
  mode: RowLockMode,
  unlessLocked: 'wait' | 'skip' | 'fail',
  guard: 'off' | 'remember' | 'compare',
): string {
  const { table, key, columns } = wanted
  const names = key.map((_, index) => `k${index}`).join(', ')
  const ordered = key.map((column) => `t.${column}`).join(', ')
  const shown = columns === undefined ? 't.*' : columns.map((column) => `t.${column}`).join(', ')
  const watched = [
    guard === 'off'
      ? ''
      : `, jsonb_build_array(${key.map((column) => `t.${column}::text`).join(', ')})::text AS ${ROW_KEY}`,
    guard === 'compare'
      ? `, ((${ordered}) < (${key.map((_, n) => `$${key.length + n + 1}`).join(', ')}))::text AS ${COMES_BEFORE}`
      : '',
  ].join('')
  const otherwise = { wait: '', skip: ' SKIP LOCKED', fail: ' NOWAIT' }[unlessLocked]
  return `SELECT given.places AS ${PLACES}${watched}, ${shown}
  FROM (SELECT ${names}, string_agg(place::text, ',') AS places FROM ${given(wanted)} GROUP BY ${names}) AS given
  JOIN ${table} AS t ON ${match(wanted)}
 ORDER BY ${ordered}
   FOR ${LOCKING[mode]} OF t${otherwise}`
}

/** Which of the given ids, from 1, exist: of those that were skipped, the ones that somebody else holds. */
export function existingIds(wanted: RowsWanted): string {
  return `SELECT place::text AS place FROM ${given(wanted)} WHERE EXISTS (SELECT FROM ${wanted.table} AS t WHERE ${match(wanted)})`
}
