import { type StatementResult, type TextRow, withConnection } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { checkNumber } from './checkNumber.ts'
import { endAfter } from './outbox.sql.ts'

/** Reads for people who look. */
export type BoundedRead = (text: string) => Promise<StatementResult<TextRow>[]>

/** Longer than an hour is no bound. */
const MOST_MS = 3_600_000

/** How reads are made whose statements end after a time each; undefined: they take as long as they take. */
export function boundedRead({ driver, silence }: LockstepContext, timeoutMs: number | undefined): BoundedRead {
  if (timeoutMs === undefined) return (text) => withConnection(driver, (connection) => connection.script(text), silence)
  const bound = endAfter(checkNumber('timeoutMs', timeoutMs, 1, MOST_MS))
  // The result of the setting is not the caller's.
  return async (text) =>
    (await withConnection(driver, (connection) => connection.script(bound + text), silence)).slice(1)
}
