import { lockTimeout } from './locks.sql.ts'
import type { LockMethod } from './lockMethod.ts'

/**
 * A row for each key, for places without advisory locks. The upsert makes the row or locks the one that is there, waits for
 * its holder, and writes nothing to it. Only for READ COMMITTED: what is read afterwards is younger than the lock there.
 */
export function rowMethod(schema: string): LockMethod {
  return {
    name: 'table',
    heldBySession: false,
    tryLocks: (locks, granted) =>
      locks.reduceRight(
        (inner, { id, shared }) => `CASE WHEN ${schema}.lock_row_try('${id}', ${shared}) IS NOT NULL THEN ${inner} END`,
        granted,
      ),
    waitForLocks: (locks, waitMs) =>
      locks
        .map(
          ({ id, shared }, index) =>
            `${lockTimeout(waitMs, index)} SELECT ${schema}.lock_row_wait('${id}', ${shared});`,
        )
        .join(' '),
    missing: {
      column: (locks) =>
        `${schema}.lock_rows_existing('{${locks.map((lock) => lock.id).join(',')}}')::text AS existing`,
      isIn: (row, locks) => Number((row as { existing?: string }).existing) < locks.length,
    },
  }
}
