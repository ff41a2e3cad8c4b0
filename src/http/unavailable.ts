import { QueueFullError, RetriesExhaustedError } from '../errors.ts'
import { findCause, meansConnectionLost, meansNoConnection } from '../postgres/index.ts'
import type { Answer } from './guard.ts'
import { problem } from './problem.ts'

/** The answer for a database that could not be asked, or for which too many wait: 503, never a conflict. Undefined for every other error. */
export function unavailable(error: unknown): Answer | undefined {
  if (!meansNoConnection(error) && !neverReached(error) && !(error instanceof QueueFullError)) return undefined
  return problem('unavailable', 'Nothing was done. Try again later.', { retryAfterMs: 1000 })
}

/** Each time that it was tried. */
function neverReached(error: unknown): boolean {
  if (!(error instanceof RetriesExhaustedError)) return false
  return findCause(error.cause, (cause) => meansNoConnection(cause) || meansConnectionLost(cause)) !== undefined
}
