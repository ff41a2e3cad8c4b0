import type { StatementResult, TextRow } from '../postgres/index.ts'

/** The rows of the one statement of a message that has any. */
export function resultRows(results: readonly StatementResult<TextRow>[]): TextRow[] {
  return results.find(({ rows }) => rows.length > 0)?.rows ?? []
}
