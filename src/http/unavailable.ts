import { findCause, meansConnectionLost } from '../postgres/index.ts'
import { hasCode } from './errorCode.ts'
import type { Answer } from './guard.ts'
import { problem } from './problem.ts'

/** The answer for a database that could not be asked, or for which too many wait: 503, never a conflict. Undefined for every other error. */
export function unavailable(error: unknown): Answer | undefined {
  if (!meansNoConnection(error) && !neverReached(error) && !hasCode(error, 'LOCKSTEP_QUEUE_FULL')) return undefined
  return problem('unavailable', 'Nothing was done. Try again later.', { retryAfterMs: 1000 })
}

/** No connection came, or the one that was there was lost. */
function meansNoConnection(error: unknown): boolean {
  if (hasCode(error, 'LOCKSTEP_CONNECTION_LOST')) return true
  return hasCode(error, 'LOCKSTEP_LOCK_TIMEOUT') && error.waitedFor === 'connection'
}

/** Each time that it was tried. */
function neverReached(error: unknown): boolean {
  if (!hasCode(error, 'LOCKSTEP_RETRIES_EXHAUSTED')) return false
  return findCause(error.cause, (cause) => meansNoConnection(cause) || meansConnectionLost(cause)) !== undefined
}
