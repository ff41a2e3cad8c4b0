import { quoteLiteral } from '../postgres/index.ts'
import type { KeyTemplate } from './keyTemplate.ts'

/** The guards of tables. The schema's name arrives quoted. */

export const ROLLBACK = 'ROLLBACK'

const AT = (column: string): string => `to_char(${column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

export function listGuards(schema: string): string {
  return `
    SELECT id::text AS id, relation, key, held, mode, percent::text AS percent, reason, ${AT('added_at')} AS added,
           ${AT('changed_at')} AS changed, unlocked::text AS unlocked, listed::text AS listed, refused::text AS refused, state
      FROM ${schema}.guard_list()`
}

export function listSamples(schema: string): string {
  return `
    SELECT ${AT('at')} AS at, operation, key, application, role, query
      FROM ${schema}.guard_sample_list($1::text::int, $2::text::int)`
}

/** One row where there is such a guard. */
export function setGuard(schema: string): string {
  return `SELECT 1 FROM ${schema}.guard_set($1::text::int, $2::text, $3::text::int, $4::text)`
}

/** What `guard_add()` takes. */
export interface GuardToAdd {
  readonly table: string
  readonly template: KeyTemplate
  readonly held: string
  /** Null: as it is, or `observe` where the guard is new. */
  readonly mode: string | null
  readonly percent: number | null
  readonly reason: string
}

/** The cast finds the table in the search_path of the session, as every statement of the caller does. */
export function addGuard(schema: string, guard: GuardToAdd, waitMs: number): string {
  const { text, literals, columns } = guard.template
  const values = [
    `${quoteLiteral(guard.table)}::regclass`,
    quoteLiteral(text),
    listOf(literals),
    listOf(columns),
    quoteLiteral(guard.held),
    guard.mode === null ? 'NULL' : quoteLiteral(guard.mode),
    guard.percent ?? 'NULL',
    quoteLiteral(guard.reason),
  ]
  return change(`SELECT ${schema}.guard_add(${values.join(', ')})::text AS id`, waitMs)
}

export function removeGuard(schema: string, id: number, waitMs: number): string {
  return change(`SELECT 1 FROM ${schema}.guard_remove(${id})`, waitMs)
}

/** Both wait for transactions that write to the table, and block all that come after them: not for long. */
function change(statement: string, waitMs: number): string {
  const bound = Math.max(1, Math.ceil(waitMs))
  return `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = ${bound}; ${statement}; COMMIT`
}

function listOf(texts: readonly string[]): string {
  return `ARRAY[${texts.map((each) => quoteLiteral(each)).join(', ')}]::text[]`
}
