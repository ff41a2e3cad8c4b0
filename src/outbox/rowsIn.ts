import type { StatementResult } from '../postgres/index.ts'

/** The rows of the one statement of a message that has any. */
export function rowsIn(results: readonly StatementResult[]): Record<string, unknown>[] {
  return results.find(({ rows }) => rows.length > 0)?.rows ?? []
}
