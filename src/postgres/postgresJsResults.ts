import type { StatementResult, TextRow } from './connection.ts'
import type { Backend } from './postgresJsClient.ts'

/** What postgres.js answers to one statement: a list of rows. */
export interface PostgresJsResult extends Array<unknown> {
  readonly columns?: readonly { readonly name: string }[] | null
  readonly command?: string
  readonly count?: number | null
  readonly state?: Backend
}

/** Rows as the caller gets them. */
export function toStatementResult(result: PostgresJsResult): StatementResult {
  // A plain array: theirs carries the connection's secrets along. Array.from and slice take ten times as long on it.
  const rows: Record<string, unknown>[] = []
  for (let index = 0; index < result.length; index++) rows.push(result[index] as Record<string, unknown>)
  return { rows, rowCount: result.count ?? rows.length, command: result.command ?? '' }
}

/** Rows of ours, from lists of bytes. */
export function toTextResult(result: PostgresJsResult): StatementResult<TextRow> {
  const rows: TextRow[] = []
  const columns = result.columns ?? []
  for (let index = 0; index < result.length; index++) {
    const values = result[index] as (Buffer | null)[]
    const row: TextRow = {}
    for (let place = 0; place < columns.length; place++) {
      row[(columns[place] as { name: string }).name] = values[place]?.toString() ?? null
    }
    rows.push(row)
  }
  return { rows, rowCount: result.count ?? rows.length, command: result.command ?? '' }
}

/**
 * From rows of a pool that is not known: a client of another `sql` was given to `join()`. What its owner has postgres.js do to them
 * cannot be kept away, but our names are single words in lower case, which the usual transforms leave alone or begin with a capital.
 */
export function toTextOfUnknownPool(result: PostgresJsResult): StatementResult<TextRow> {
  const { rows, ...rest } = toStatementResult(result)
  const named = rows.map((row) => {
    const entries = Object.entries(row).map(([name, value]) => [
      name.toLowerCase(),
      value === null || value === undefined ? null : String(value as string | number),
    ])
    return Object.fromEntries(entries) as TextRow
  })
  return { ...rest, rows: named }
}

/** Whether it is the answers to several statements. */
export function isSeveral(result: PostgresJsResult | PostgresJsResult[]): result is PostgresJsResult[] {
  return !('command' in result)
}
