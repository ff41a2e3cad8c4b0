/**
 * Every error that Lockstep throws by itself. Each has a stable `code`, the keys it is about, and `advice`: what to do now.
 * Errors of the database that are not Lockstep's business (a constraint, a syntax error) pass through as the driver made them.
 */

/** The stable codes, one per error class. Programs compare these, never the message. */
export type LockstepErrorCode =
  | 'LOCKSTEP_INVALID_KEY'
  | 'LOCKSTEP_INVALID_OPTION'
  | 'LOCKSTEP_LOCK_TIMEOUT'
  | 'LOCKSTEP_LOCK_ABORTED'
  | 'LOCKSTEP_NESTED_TRANSACTION'
  | 'LOCKSTEP_TRANSACTION_ENDED'
  | 'LOCKSTEP_TRANSACTION_CONTROL'
  | 'LOCKSTEP_TRANSACTION_ENDED_EARLY'
  | 'LOCKSTEP_TRANSACTION_ROLLED_BACK'
  | 'LOCKSTEP_SAVEPOINT_OPEN'
  | 'LOCKSTEP_COMMIT_OUTCOME_UNKNOWN'
  | 'LOCKSTEP_RETRIES_EXHAUSTED'
  | 'LOCKSTEP_CONNECTION_LOST'
  | 'LOCKSTEP_CONNECTION_REJECTED'
  | 'LOCKSTEP_POOL_CLOSED'
  | 'LOCKSTEP_CLOSED'
  | 'LOCKSTEP_JOIN_REFUSED'
  | 'LOCKSTEP_STANDBY'
  | 'LOCKSTEP_LOCKS_INEFFECTIVE'
  | 'LOCKSTEP_SCHEMA_MISSING'
  | 'LOCKSTEP_SCHEMA_TOO_OLD'
  | 'LOCKSTEP_SCHEMA_TOO_NEW'
  | 'LOCKSTEP_SCHEMA_NOT_OWNED'
  | 'LOCKSTEP_MIGRATION_FAILED'
  | 'LOCKSTEP_DRIVER_UNSUPPORTED'
  | 'LOCKSTEP_STRATEGY_UNSUPPORTED'
  | 'LOCKSTEP_WRITE_WITHOUT_LOCK'
  | 'LOCKSTEP_ROWS_MISSING'
  | 'LOCKSTEP_ROWS_LOCKED'
  | 'LOCKSTEP_ROWS_DEADLOCKED'
  | 'LOCKSTEP_QUEUE_FULL'
  | 'LOCKSTEP_BATCH_MISMATCH'
  | 'LOCKSTEP_LEASE_HELD'
  | 'LOCKSTEP_LEASE_LOST'
  | 'LOCKSTEP_LEASE_PERMITS'
  | 'LOCKSTEP_LEASE_BUSY'
  | 'LOCKSTEP_LEASE_TRANSACTION_TOO_LONG'
  | 'LOCKSTEP_STREAM_NOT_DECLARED'
  | 'LOCKSTEP_STREAM_NOT_PARKED'
  | 'LOCKSTEP_EVENT_INVALID'
  | 'LOCKSTEP_PAYLOAD_INVALID'
  | 'LOCKSTEP_PAYLOAD_VERSION'
  | 'LOCKSTEP_OUTBOX_REBASE_NEEDED'
  | 'LOCKSTEP_DISPATCHER_REMOVED'
  | 'LOCKSTEP_SHARDS_BUSY'
  | 'LOCKSTEP_FLUSH_UNCONFIRMED'
  | 'LOCKSTEP_REPLAY_STOPPED'
  | 'LOCKSTEP_REPLAY_GAP'
  | 'LOCKSTEP_INBOX_GAP'
  | 'LOCKSTEP_HISTORY_DIVERGED'
  | 'LOCKSTEP_WEBHOOK_UNVERIFIED'
  | 'LOCKSTEP_TEST_LEAK'
  | 'LOCKSTEP_TEST_DRAIN'

/** What every Lockstep error carries beside its message. */
export interface LockstepErrorDetails {
  readonly advice: string
  readonly keys?: readonly string[] | undefined
  readonly cause?: unknown
}

/** The common parent: `error instanceof LockstepError`, or compare `error.code`. */
export abstract class LockstepError extends Error {
  /** The name of the class. Written out in each: minifiers shorten the names of classes. */
  abstract override readonly name: string
  abstract readonly code: LockstepErrorCode
  /** What to do about it, one sentence. */
  readonly advice: string
  /** The keys that the failing call named. */
  readonly keys: readonly string[]

  constructor(message: string, details: LockstepErrorDetails) {
    super(`${message} ${details.advice}`, details.cause === undefined ? undefined : { cause: details.cause })
    this.advice = details.advice
    this.keys = details.keys ?? []
  }
}
