import { ConnectionLostError, TransactionEndedEarlyError } from '../errors.ts'
import { codeOf, findCause, meansConnectionLost, meansSessionTimedOut, meansTryAgain } from '../postgres/index.ts'
import type { RetryReason } from './retryOptions.ts'

/** Why another attempt is worth it, or not. */
export type Verdict = RetryReason | 'final'

/** Judges the error of an attempt that certainly did not commit. `lost`: the connection's end was seen. */
export function classifyError(error: unknown, lost: boolean): { verdict: Verdict; reason: string | undefined } {
  // A part of it may be committed: running it again could do that twice.
  const early = findCause(error, (each) => each instanceof TransactionEndedEarlyError)
  if (early !== undefined) return { verdict: 'final', reason: codeOf(early) }
  const conflict = findCause(error, meansTryAgain)
  if (conflict !== undefined) return { verdict: 'conflict', reason: codeOf(conflict) }
  if (findCause(error, meansSessionTimedOut) !== undefined) return { verdict: 'final', reason: codeOf(error) }
  // A socket error may have another source, such as a call to another service: it counts only where our connection is gone as well.
  const connection = lost ? findCause(error, reportsLostConnection) : undefined
  if (connection !== undefined) return { verdict: 'connection', reason: codeOf(connection) }
  return { verdict: 'final', reason: codeOf(error) }
}

/** pg says "Connection terminated unexpectedly" in a plain error without a code. */
export function reportsLostConnection(candidate: unknown): boolean {
  if (candidate instanceof ConnectionLostError || meansConnectionLost(candidate)) return true
  return candidate instanceof Error && candidate.constructor === Error && codeOf(candidate) === undefined
}
