import { ConnectionLost, LockTimeout, RetriesExhausted } from '../errors.ts'
import { findCause, meansConnectionLost } from '../postgres/index.ts'
import type { Answer } from './guard.ts'
import { problem } from './problem.ts'

/** The answer for a database that could not be asked: 503, never a conflict. Undefined for every other error. */
export function unavailable(error: unknown): Answer | undefined {
  const noConnection = error instanceof LockTimeout && error.waitedFor === 'connection'
  if (!noConnection && !isLost(error)) return undefined
  return problem('unavailable', 'Nothing was done. Try again later.', { retryAfterMs: 1000 })
}

/** At once, or each time that it was tried. */
function isLost(error: unknown): boolean {
  if (!(error instanceof RetriesExhausted)) return error instanceof ConnectionLost
  return findCause(error.cause, (cause) => cause instanceof ConnectionLost || meansConnectionLost(cause)) !== undefined
}
