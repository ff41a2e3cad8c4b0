import { ConnectionLost, LockTimeout } from '../errors.ts'
import type { Answer } from './guard.ts'
import { problem } from './problem.ts'

/** The answer for a database that could not be asked: 503, never a conflict. Undefined for every other error. */
export function unavailable(error: unknown): Answer | undefined {
  const noConnection = error instanceof LockTimeout && error.waitedFor === 'connection'
  if (!noConnection && !(error instanceof ConnectionLost)) return undefined
  return problem('unavailable', 'Nothing was done. Try again later.', { retryAfterMs: 1000 })
}
