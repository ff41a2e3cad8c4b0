/** Makes a savepoint read only. It ends with the savepoint. */
export function readOnly(): string {
  return 'SET TRANSACTION READ ONLY'
}

/** What Knex sends first in a transaction of its own. */
export const KNEX_BEGIN = 'BEGIN;'

/** What Prisma sends last in a transaction of its own. */
export const PRISMA_END: ReadonlySet<string> = new Set(['COMMIT', 'ROLLBACK'])
