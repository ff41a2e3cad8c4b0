import { InvalidOptionError, LockstepError, type LockstepErrorCode } from '../errors.ts'
import { codeOf, findCause, isSqlState } from '../postgres/index.ts'

/** Where a transaction was when it failed: not open yet, in the inbox, in the caller's handler, or behind it. */
export type Stage = 'before' | 'accepting' | 'handling' | 'committing'

/** The time for one transaction was over. */
export class ApplyTimeoutError extends Error {
  override readonly name = 'ApplyTimeoutError'
}

/** Failures of the way or of the server: the same event may go through in a moment. */
const UNRELATED_CODES: ReadonlySet<LockstepErrorCode> = new Set([
  'LOCKSTEP_LOCK_TIMEOUT',
  'LOCKSTEP_LOCK_ABORTED',
  'LOCKSTEP_COMMIT_OUTCOME_UNKNOWN',
  'LOCKSTEP_RETRIES_EXHAUSTED',
  'LOCKSTEP_CONNECTION_LOST',
  'LOCKSTEP_CONNECTION_REJECTED',
  'LOCKSTEP_POOL_CLOSED',
  'LOCKSTEP_CLOSED',
  'LOCKSTEP_STANDBY',
  'LOCKSTEP_LOCKS_INEFFECTIVE',
])

/** Of SQLSTATEs: lost, too many connections or a full disk, an operator's doing, a broken system, a conflict, a lock not granted, read-only. */
const SERVERS = /^(?:08|40|53|58|57P)[0-9A-Z]+$|^(?:55P03|25006|25P03|25P04)$/

/**
 * Whether a failed transaction says nothing about the events that were in it. Before the handler only an event that is none can be to
 * blame. Of what a handler throws, PostgreSQL's own words about itself count: that it cannot reach some other service may be due to the
 * one event that it was about, and so may be that it takes too long. A COMMIT that takes too long may have committed: an event that is blamed
 * for it could be given up although its effect is there. What COMMIT reports, such as a deferred constraint, is the handler's.
 */
export function isUnrelatedToEvents(error: unknown, stage: Stage): boolean {
  if (stage === 'before') return true
  if (stage === 'accepting') return !(error instanceof InvalidOptionError)
  if (stage === 'committing' && error instanceof ApplyTimeoutError) return true
  const found = findCause(error, (each) =>
    each instanceof LockstepError
      ? UNRELATED_CODES.has(each.code)
      : isSqlState(each) && SERVERS.test(codeOf(each) as string),
  )
  return found !== undefined
}
