import { LockstepError, type LockstepErrorDetails } from './lockstepError.ts'

export * from './lockstepError.ts'

/** A key that cannot name a concept: empty, generic, too long, or holding characters that PostgreSQL cannot store. */
export class InvalidKeyError extends LockstepError {
  override readonly name = 'InvalidKeyError'
  readonly code = 'LOCKSTEP_INVALID_KEY'
}

/** An option with a value that makes no sense; nothing was sent to the database. */
export class InvalidOptionError extends LockstepError {
  override readonly name = 'InvalidOptionError'
  readonly code = 'LOCKSTEP_INVALID_OPTION'
}

/** Who holds a lock, as far as the server or this process can tell. */
export interface LockHolder {
  /** `process`: a caller in this very process; `server`: another connection. */
  readonly where: 'process' | 'server'
  readonly key: string
  readonly pid?: number
  readonly application?: string
  readonly state?: string
  /** How long the holder's transaction has been open. */
  readonly openForMs?: number
}

/** The lock was not granted within `waitMs`. Nothing is held. */
export class LockTimeoutError extends LockstepError {
  override readonly name = 'LockTimeoutError'
  readonly code = 'LOCKSTEP_LOCK_TIMEOUT'
  readonly waitedMs: number
  /** What the time went to: callers of this process, a connection from the pool, or the server's lock. */
  readonly waitedFor: WaitStage
  readonly holders: readonly LockHolder[]

  constructor(
    message: string,
    details: LockstepErrorDetails & { waitedMs: number; waitedFor: WaitStage; holders: readonly LockHolder[] },
  ) {
    super(message, details)
    this.waitedMs = details.waitedMs
    this.waitedFor = details.waitedFor
    this.holders = details.holders
  }
}

/** Where a caller was waiting before its transaction began. */
export type WaitStage = 'process' | 'connection' | 'server'

/** The caller's `signal` aborted before the transaction began. Nothing is held. `cause` is the signal's reason. */
export class LockAbortedError extends LockstepError {
  override readonly name = 'LockAbortedError'
  readonly code = 'LOCKSTEP_LOCK_ABORTED'
}

/** A transaction inside a transaction that is not a part of it, or asks for what it does not have. */
export class NestedTransactionError extends LockstepError {
  override readonly name = 'NestedTransactionError'
  readonly code = 'LOCKSTEP_NESTED_TRANSACTION'
}

/** A query through a `tx` whose transaction is over. Nothing was sent. */
export class TransactionEndedError extends LockstepError {
  override readonly name = 'TransactionEndedError'
  readonly code = 'LOCKSTEP_TRANSACTION_ENDED'
}

/** A statement would have begun or ended the transaction: that is Lockstep's to do. It was not sent. */
export class TransactionControlError extends LockstepError {
  override readonly name = 'TransactionControlError'
  readonly code = 'LOCKSTEP_TRANSACTION_CONTROL'
}

/**
 * The transaction had ended before its function did, by a COMMIT or ROLLBACK that Lockstep did not send. From then on nothing was locked.
 * It is not run again.
 */
export class TransactionEndedEarlyError extends LockstepError {
  override readonly name = 'TransactionEndedEarlyError'
  readonly code = 'LOCKSTEP_TRANSACTION_ENDED_EARLY'
  /** The outcome of what was written before that, if the server reports it. */
  readonly outcome: 'committed' | 'rolledBack' | 'unknown'

  constructor(
    message: string,
    details: LockstepErrorDetails & { readonly outcome: TransactionEndedEarlyError['outcome'] },
  ) {
    super(message, details)
    this.outcome = details.outcome
  }
}

/** A statement of an outer tx was not sent, because a savepoint or an inner transaction is open: it would be undone with that. */
export class SavepointOpenError extends LockstepError {
  override readonly name = 'SavepointOpenError'
  readonly code = 'LOCKSTEP_SAVEPOINT_OPEN'
  /** How long it waited for the end of that; 0 where that end could not come before its own. */
  readonly waitedMs: number

  constructor(message: string, details: LockstepErrorDetails & { readonly waitedMs: number }) {
    super(message, details)
    this.waitedMs = details.waitedMs
  }
}

/** The transaction could not be committed: a statement had failed and its error was caught. Nothing was written. */
export class TransactionRolledBackError extends LockstepError {
  override readonly name = 'TransactionRolledBackError'
  readonly code = 'LOCKSTEP_TRANSACTION_ROLLED_BACK'
}

/** The connection was lost in COMMIT and the server can no longer say whether it took effect. */
export class CommitOutcomeUnknownError extends LockstepError {
  override readonly name = 'CommitOutcomeUnknownError'
  readonly code = 'LOCKSTEP_COMMIT_OUTCOME_UNKNOWN'
}

/** Every attempt failed for a reason that is worth a retry; `cause` is the last one. Nothing was written. */
export class RetriesExhaustedError extends LockstepError {
  override readonly name = 'RetriesExhaustedError'
  readonly code = 'LOCKSTEP_RETRIES_EXHAUSTED'
  readonly attempts: number

  constructor(message: string, details: LockstepErrorDetails & { attempts: number }) {
    super(message, details)
    this.attempts = details.attempts
  }
}

/** The server could not be reached, or the connection was lost before COMMIT was sent. Nothing was written. */
export class ConnectionLostError extends LockstepError {
  override readonly name = 'ConnectionLostError'
  readonly code = 'LOCKSTEP_CONNECTION_LOST'
}

/** What is wrong with the way the pool connects. */
export type RejectionReason = 'authentication' | 'database' | 'tls' | 'settings'

/** No connection can be opened until the configuration of the pool or of the server is changed. Nothing was sent. */
export class ConnectionRejectedError extends LockstepError {
  override readonly name = 'ConnectionRejectedError'
  readonly code = 'LOCKSTEP_CONNECTION_REJECTED'
  readonly reason: RejectionReason

  constructor(message: string, details: LockstepErrorDetails & { reason: RejectionReason }) {
    super(message, details)
    this.reason = details.reason
  }
}

/** The caller's pool was closed. Nothing was sent. */
export class PoolClosedError extends LockstepError {
  override readonly name = 'PoolClosedError'
  readonly code = 'LOCKSTEP_POOL_CLOSED'
}

/** `lockstep.close()` was called. Nothing was sent. */
export class LockstepClosedError extends LockstepError {
  override readonly name = 'LockstepClosedError'
  readonly code = 'LOCKSTEP_CLOSED'
}

/** `join()` or `outbox.enqueue()` was given a client in which the promise cannot be kept. Its transaction is as it was. */
export class JoinRefusedError extends LockstepError {
  override readonly name = 'JoinRefusedError'
  readonly code = 'LOCKSTEP_JOIN_REFUSED'
}

/** The server is a standby: locks taken there do not exclude the primary's. */
export class StandbyRefusedError extends LockstepError {
  override readonly name = 'StandbyRefusedError'
  readonly code = 'LOCKSTEP_STANDBY'
}

/** What a trial of the locks found. */
export type LocksIneffectiveReason =
  | 'granted twice'
  | 'never granted'
  | 'not listed'
  | 'statements split'
  | 'transactions refused'
  | 'not supported'
  | 'Citus worker'

/** A trial showed that locks do not exclude here, because of the engine or of what lies between. Nothing was written. */
export class LocksIneffectiveError extends LockstepError {
  override readonly name = 'LocksIneffectiveError'
  readonly code = 'LOCKSTEP_LOCKS_INEFFECTIVE'
  readonly reason: LocksIneffectiveReason

  constructor(message: string, details: LockstepErrorDetails & { reason: LocksIneffectiveReason }) {
    super(message, details)
    this.reason = details.reason
  }
}

/** The database has no Lockstep schema. */
export class SchemaMissingError extends LockstepError {
  override readonly name = 'SchemaMissingError'
  readonly code = 'LOCKSTEP_SCHEMA_MISSING'
}

/** The database's schema is older than this library needs. */
export class SchemaTooOldError extends LockstepError {
  override readonly name = 'SchemaTooOldError'
  readonly code = 'LOCKSTEP_SCHEMA_TOO_OLD'
}

/** The database's schema was migrated by a newer library in a way that this one cannot use. */
export class SchemaTooNewError extends LockstepError {
  override readonly name = 'SchemaTooNewError'
  readonly code = 'LOCKSTEP_SCHEMA_TOO_NEW'
}

/** The schema, or something in it, is in the hands of another role, whose code would run with the rights of this one. */
export class SchemaNotOwnedError extends LockstepError {
  override readonly name = 'SchemaNotOwnedError'
  readonly code = 'LOCKSTEP_SCHEMA_NOT_OWNED'
}

/** A migration could not be applied; the schema is as it was before. */
export class MigrationFailedError extends LockstepError {
  override readonly name = 'MigrationFailedError'
  readonly code = 'LOCKSTEP_MIGRATION_FAILED'
}

/** The object given to `new Lockstep()` is neither a `pg` pool nor a postgres.js `sql`, or a version that cannot be used safely. */
export class DriverUnsupportedError extends LockstepError {
  override readonly name = 'DriverUnsupportedError'
  readonly code = 'LOCKSTEP_DRIVER_UNSUPPORTED'
}

/** `strategy: 'table'` cannot keep the promise here. Nothing was sent. */
export class StrategyUnsupportedError extends LockstepError {
  override readonly name = 'StrategyUnsupportedError'
  readonly code = 'LOCKSTEP_STRATEGY_UNSUPPORTED'
}

/** A guard refused a write: the transaction does not hold the lock of the row. Nothing of the statement was written. */
export class WriteWithoutLockError extends LockstepError {
  override readonly name = 'WriteWithoutLockError'
  readonly code = 'LOCKSTEP_WRITE_WITHOUT_LOCK'
  /** The table with its schema. */
  readonly table: string

  constructor(message: string, details: LockstepErrorDetails & { table: string }) {
    super(message, details)
    this.table = details.table
  }
}

/** Rows that were to be locked do not exist. */
export class RowsMissingError extends LockstepError {
  override readonly name = 'RowsMissingError'
  readonly code = 'LOCKSTEP_ROWS_MISSING'
  /** The table, quoted. */
  readonly table: string
  /** The ids, as they were given. */
  readonly missing: readonly unknown[]

  constructor(message: string, details: LockstepErrorDetails & { table: string; missing: readonly unknown[] }) {
    super(message, details)
    this.table = details.table
    this.missing = details.missing
  }
}

/** A row that was to be locked without waiting is locked by another session. */
export class RowsLockedError extends LockstepError {
  override readonly name = 'RowsLockedError'
  readonly code = 'LOCKSTEP_ROWS_LOCKED'
  /** The table, quoted. */
  readonly table: string

  constructor(message: string, details: LockstepErrorDetails & { table: string }) {
    super(message, details)
    this.table = details.table
  }
}

/** `lockRows()` and another session waited for each other. `transaction()` tries again; `cause` is the server's 40P01. */
export class RowsDeadlockedError extends LockstepError {
  override readonly name = 'RowsDeadlockedError'
  readonly code = 'LOCKSTEP_ROWS_DEADLOCKED'
  /** The table, quoted. */
  readonly table: string
  /** The columns by which this call orders the rows; then those by which other calls of the same Lockstep do, if any. */
  readonly orders: readonly string[]

  constructor(message: string, details: LockstepErrorDetails & { table: string; orders: readonly string[] }) {
    super(message, details)
    this.table = details.table
    this.orders = details.orders
  }
}

/** More calls wait than `maxQueue` allows: for their batch, for a key, or for a connection. The call was not taken. */
export class QueueFullError extends LockstepError {
  override readonly name = 'QueueFullError'
  readonly code = 'LOCKSTEP_QUEUE_FULL'
  /** How many wait already. */
  readonly waiting: number

  constructor(message: string, details: LockstepErrorDetails & { waiting: number }) {
    super(message, details)
    this.waiting = details.waiting
  }
}

/** The function of a `combine()` did not give one result for each item. Nothing was written. */
export class BatchMismatchError extends LockstepError {
  override readonly name = 'BatchMismatchError'
  readonly code = 'LOCKSTEP_BATCH_MISMATCH'
}

/** The database said, in this call, that another caller has the lease or is ahead in the queue for it. */
export class LeaseHeldError extends LockstepError {
  override readonly name = 'LeaseHeldError'
  readonly code = 'LOCKSTEP_LEASE_HELD'
  /** Who has it; undefined if it is free and others are ahead in the queue. */
  readonly holder: string | undefined
  readonly since: Date | undefined
  /** Until it ends, if its holder does not renew it. */
  readonly leftMs: number
  /** How long it was waited for. */
  readonly waitedMs: number

  constructor(
    message: string,
    details: LockstepErrorDetails & {
      holder: string | undefined
      since: Date | undefined
      leftMs: number
      waitedMs: number
    },
  ) {
    super(message, details)
    this.holder = details.holder
    this.since = details.since
    this.leftMs = details.leftMs
    this.waitedMs = details.waitedMs
  }
}

/** Why a lease is not held any more. */
export type LeaseLostReason = 'not renewed in time' | 'taken away' | 'held too long' | 'closed' | 'released'

/**
 * The lease is not held any more, or it is not certain. Nothing that its transactions have not committed yet will be. `cause`: what the
 * holder's function threw after the loss.
 */
export class LeaseLostError extends LockstepError {
  override readonly name = 'LeaseLostError'
  readonly code = 'LOCKSTEP_LEASE_LOST'
  readonly reason: LeaseLostReason
  readonly fence: bigint

  constructor(message: string, details: LockstepErrorDetails & { reason: LeaseLostReason; fence: bigint }) {
    super(message, details)
    this.reason = details.reason
    this.fence = details.fence
  }
}

/** Callers of one lease do not agree on the number of its permits. */
export class LeasePermitsDifferError extends LockstepError {
  override readonly name = 'LeasePermitsDifferError'
  readonly code = 'LOCKSTEP_LEASE_PERMITS'
}

/** A `lease.transaction()` was open longer than the lease was certain when it began. Nothing was written. */
export class LeaseTransactionTooLongError extends LockstepError {
  override readonly name = 'LeaseTransactionTooLongError'
  readonly code = 'LOCKSTEP_LEASE_TRANSACTION_TOO_LONG'
}

/** A lease could not be taken away: its holder has a transaction open. */
export class LeaseBusyError extends LockstepError {
  override readonly name = 'LeaseBusyError'
  readonly code = 'LOCKSTEP_LEASE_BUSY'
}

/** An event was enqueued at REPEATABLE READ or SERIALIZABLE to a stream that was not declared beforehand. */
export class StreamNotDeclaredError extends LockstepError {
  override readonly name = 'StreamNotDeclaredError'
  override readonly code = 'LOCKSTEP_STREAM_NOT_DECLARED'
}

/** An operator's verb named a stream that does not wait. */
export class StreamNotParkedError extends LockstepError {
  override readonly name = 'StreamNotParkedError'
  override readonly code = 'LOCKSTEP_STREAM_NOT_PARKED'
}

/** An event cannot be enqueued: no topic, no key, a payload that JSON cannot hold, or too large. */
export class EventInvalidError extends LockstepError {
  override readonly name = 'EventInvalidError'
  override readonly code = 'LOCKSTEP_EVENT_INVALID'
}

/** Why a payload does not fit its contract: where in it, and what the schema says. */
export interface PayloadIssue {
  readonly message: string
  readonly path: readonly string[]
}

/** The payload of an event does not fit the contract of its topic, when it was enqueued or when it was consumed. */
export class PayloadInvalidError extends LockstepError {
  override readonly name = 'PayloadInvalidError'
  override readonly code = 'LOCKSTEP_PAYLOAD_INVALID'
  readonly topic: string
  readonly key: string
  readonly issues: readonly PayloadIssue[]

  constructor(
    message: string,
    details: Omit<LockstepErrorDetails, 'keys'> & { topic: string; key: string; issues: readonly PayloadIssue[] },
  ) {
    super(message, { ...details, keys: [`${details.topic}/${details.key}`] })
    this.topic = details.topic
    this.key = details.key
    this.issues = details.issues
  }
}

/** The payload of an event has a version that this process cannot read: a newer one, or one that is too old. */
export class PayloadVersionError extends LockstepError {
  override readonly name = 'PayloadVersionError'
  override readonly code = 'LOCKSTEP_PAYLOAD_VERSION'
  readonly topic: string
  readonly key: string
  /** Undefined where the header is no version. */
  readonly version: number | undefined

  constructor(
    message: string,
    details: Omit<LockstepErrorDetails, 'keys'> & { topic: string; key: string; version: number | undefined },
  ) {
    super(message, { ...details, keys: [`${details.topic}/${details.key}`] })
    this.topic = details.topic
    this.key = details.key
    this.version = details.version
  }
}

/** The cursors were made on another server, database or history: a dump that was restored, a clone, a point in time. */
export class OutboxRebaseNeededError extends LockstepError {
  override readonly name = 'OutboxRebaseNeededError'
  override readonly code = 'LOCKSTEP_OUTBOX_REBASE_NEEDED'
}

/** An operator has removed the dispatcher while its process was stopped or cut off. */
export class DispatcherRemovedError extends LockstepError {
  override readonly name = 'DispatcherRemovedError'
  override readonly code = 'LOCKSTEP_DISPATCHER_REMOVED'
}

/** The shards of a dispatcher could not be split now. Nothing was changed. */
export class ShardsBusyError extends LockstepError {
  override readonly name = 'ShardsBusyError'
  override readonly code = 'LOCKSTEP_SHARDS_BUSY'
}

/** It is not known whether the synchronous standby has what is to be sent: the wait for it was cancelled. Nothing was sent. */
export class FlushUnconfirmedError extends LockstepError {
  override readonly name = 'FlushUnconfirmedError'
  override readonly code = 'LOCKSTEP_FLUSH_UNCONFIRMED'
}

/** The sink of a replay did not take an event. */
export class ReplayStoppedError extends LockstepError {
  override readonly name = 'ReplayStoppedError'
  override readonly code = 'LOCKSTEP_REPLAY_STOPPED'
  /** The number and the position of the event that was not taken. */
  readonly seq: number
  readonly position: number

  constructor(message: string, details: LockstepErrorDetails & { readonly seq: number; readonly position: number }) {
    super(message, details)
    this.seq = details.seq
    this.position = details.position
  }
}

/** Retention removed events that a replay had not read yet. */
export class ReplayGapError extends LockstepError {
  override readonly name = 'ReplayGapError'
  override readonly code = 'LOCKSTEP_REPLAY_GAP'
  /** The last position that was sent. */
  readonly position: number
  /** The number of the first event that is gone, in a replay of one stream. */
  readonly seq: number | undefined

  constructor(message: string, details: LockstepErrorDetails & { readonly position: number; readonly seq?: number }) {
    super(message, details)
    this.position = details.position
    this.seq = details.seq
  }
}

/** An event came before the one that precedes it. */
export class InboxGapError extends LockstepError {
  override readonly name = 'InboxGapError'
  override readonly code = 'LOCKSTEP_INBOX_GAP'
  /** The number that was expected. */
  readonly expected: number
  readonly seq: number

  constructor(message: string, details: LockstepErrorDetails & { readonly expected: number; readonly seq: number }) {
    super(message, details)
    this.expected = details.expected
    this.seq = details.seq
  }
}

/** A number came again with another uuid: the producer's history is not the one that was consumed. */
export class HistoryDivergedError extends LockstepError {
  override readonly name = 'HistoryDivergedError'
  override readonly code = 'LOCKSTEP_HISTORY_DIVERGED'
}

/** A webhook that the holder of the secret has not sent, not now, or not like this. */
export class WebhookUnverifiedError extends LockstepError {
  override readonly name = 'WebhookUnverifiedError'
  override readonly code = 'LOCKSTEP_WEBHOOK_UNVERIFIED'
}

/** What a test can leave behind; `fault`: one that was armed and has never struck. */
export type LeakKind = 'lock' | 'lease' | 'transaction' | 'connection' | 'fault'

/** One thing that a test has left behind. */
export interface Leak {
  readonly kind: LeakKind
  /** Which one, and whose. */
  readonly detail: string
}

/** Of `pg-lockstep/testing`: a test has left something behind. */
export class LeakError extends LockstepError {
  override readonly name = 'LeakError'
  override readonly code = 'LOCKSTEP_TEST_LEAK'
  readonly leaks: readonly Leak[]

  constructor(message: string, details: LockstepErrorDetails & { readonly leaks: readonly Leak[] }) {
    super(message, details)
    this.leaks = details.leaks
  }
}

/** Of `pg-lockstep/testing`: `drain()` could not deliver everything in time. */
export class DrainTimeoutError extends LockstepError {
  override readonly name = 'DrainTimeoutError'
  override readonly code = 'LOCKSTEP_TEST_DRAIN'
}
