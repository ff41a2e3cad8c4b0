import { channel } from 'node:diagnostics_channel'
import type { LeaseLostReason, LockHolder, WaitStage } from '../errors.ts'

/** A channel with a typed message. Build the message only if `hasSubscribers` is true. */
export interface EventChannel<Message> {
  readonly name: string
  readonly hasSubscribers: boolean
  publish(message: Message): void
  subscribe(listener: (message: Message) => void): void
  unsubscribe(listener: (message: Message) => void): unknown
}

/** A caller asked for locks. */
export interface LockRequested {
  readonly schema: string
  readonly keys: readonly string[]
  readonly sharedKeys: readonly string[]
}

/** Another caller had one of the locks: the caller waits, in this process or at the server. */
export interface LockContended extends LockRequested {
  readonly where: WaitStage
}

/** All locks were granted and the transaction is open. */
export interface LockAcquired extends LockRequested {
  readonly waitMs: number
  readonly contended: boolean
  readonly attempt: number
}

/** The locks were not granted within `waitMs`; or the caller does not wait, and another session held one. */
export interface LockTimedOut extends LockRequested {
  /** The caller only tried the locks (`noWait`, or `waitMs: 0`), and another session held one: an ordinary conflict, no wait that failed. */
  readonly noWait: boolean
  readonly waitedMs: number
  readonly waitedFor: WaitStage
  readonly holders: readonly LockHolder[]
}

/** A wait has passed the threshold of slowness, and continues. */
export interface LockSlow extends LockRequested {
  readonly waitedMs: number
  readonly waitedFor: WaitStage
  /** The sessions that hold the lock. Empty if no connection was free to look them up. */
  readonly holders: readonly LockHolder[]
}

/** An observed key: the lock was not asked for, and would not have been free. Emitted once it would have been granted. */
export interface LockWouldWait {
  readonly schema: string
  readonly key: string
  /** How long the caller would have waited. */
  readonly waitMs: number
  /** False where it was followed no longer than the bound, and would have waited longer still. */
  readonly granted: boolean
}

/** The call was not taken: it would have had to wait, and as many as `maxQueue` allows wait already. */
export interface LockRefused extends LockRequested {
  /** How many wait already: for the key, or in all. */
  readonly waiting: number
}

/** The caller's signal ended the wait. */
export interface LockAbandoned extends LockRequested {
  readonly waitedMs: number
}

/** The transaction that held the locks has ended. */
export interface LockReleased extends LockRequested {
  readonly holdMs: number
  readonly outcome: 'committed' | 'rolledBack' | 'unknown'
}

/** An attempt failed in a way that a retry can resolve. */
export interface TransactionRetried {
  readonly schema: string
  readonly keys: readonly string[]
  /** The attempt that failed, from 1. */
  readonly attempt: number
  readonly delayMs: number
  /** SQLSTATE or errno; undefined where the driver gave none. */
  readonly reason: string | undefined
  readonly error: unknown
}

/** A connection was lost in COMMIT and the server was asked for the outcome. */
export interface CommitResolved {
  readonly schema: string
  readonly keys: readonly string[]
  readonly xid: string
  readonly outcome: 'committed' | 'rolledBack' | 'unknown'
  readonly tookMs: number
}

/** A trigger has put the keys of a prefix back to `observe`: they are not locked any more. Reported by the one process that did it. */
export interface RolloutSwitchedBack {
  readonly schema: string
  readonly prefix: string
  /** The option of `switchBack` that it was. */
  readonly trigger: 'waitMs' | 'failurePercent' | 'duplicates' | 'slowerPercent'
  /** Why, in a sentence. */
  readonly reason: string
}

/** A guard refused a write of a transaction of this process: it did not hold the lock of the row. */
export interface GuardRefused {
  readonly schema: string
  /** With its schema. */
  readonly table: string
  /** Undefined: TRUNCATE. */
  readonly key: string | undefined
}

/** Something is there twice, or a unique index has refused to have it twice, although its key is there to prevent that. */
export interface RolloutDuplicateFound {
  readonly schema: string
  readonly key: string
  /** How the key was treated: `on` means that a caller creates without it. */
  readonly mode: 'on' | 'observe' | 'off'
  /** What was found, in the words of the code that reported it. */
  readonly detail: string
}

/** One row of a call of `lockRows()`. */
export interface RowLocked {
  /** The values of the columns that the call orders rows by, as text. Empty if it was a call of another transaction. */
  readonly id: readonly string[]
  /** Those columns, quoted. */
  readonly orderBy: readonly string[]
  /** Where the call was made. */
  readonly stack: string
}

/**
 * Rows of one table were locked out of order: a transaction has locked some in two calls, and a row of the later one comes before one of
 * the earlier; or two calls, of one transaction or of two, order them by different columns.
 */
export interface RowsOutOfOrder {
  /** The table, and in brackets the columns by which the later call orders its rows. */
  readonly table: string
  readonly earlier: RowLocked
  readonly later: RowLocked
}

/** A batch of combined calls has ended. */
export interface CombineBatch {
  readonly schema: string
  readonly key: string
  /** How many calls were in it. */
  readonly size: number
  /** How many calls of this key wait for the next one. */
  readonly waiting: number
  /** How long the first of them had waited for the batch to begin. */
  readonly waitedMs: number
  /** From the first statement of the batch to its end. */
  readonly tookMs: number
  /** `halved`: it failed for a reason of its items, and each half is tried by itself. */
  readonly outcome: 'committed' | 'failed' | 'halved'
}

/** A combined call was not taken: too many wait already. */
export interface CombineRefused {
  readonly schema: string
  readonly key: string
  readonly waiting: number
}

/** What every event of a lease says. */
interface LeaseEvent {
  readonly schema: string
  readonly key: string
  readonly holder: string
}

/** A lease was granted. */
export interface LeaseAcquired extends LeaseEvent {
  readonly fence: bigint
  readonly waitedMs: number
}

/** Another caller has the lease. */
export interface LeaseRefused extends LeaseEvent {
  /** Who has it; undefined if it is free and others are ahead in the queue. */
  readonly heldBy: string | undefined
  /** Until it ends, if it is not renewed. */
  readonly leftMs: number
  /** Whether the caller waits for it now. */
  readonly waits: boolean
}

/** A wait for a lease has passed the threshold of slowness, and continues. */
export interface LeaseSlow extends LeaseEvent {
  readonly waitedMs: number
  /** Who had it when the database was last asked, if known. */
  readonly heldBy: string | undefined
}

/** An observed key: the lease was not asked for, and would not have been free. Reported once it is known how the wait would have ended. */
export interface LeaseWouldWait extends LeaseEvent {
  readonly heldBy: string | undefined
  /** How long the caller would have waited. */
  readonly waitMs: number
  /** False where the caller would have been refused: at once, or after its `waitMs`. */
  readonly granted: boolean
}

/** The database could not be asked for a lease. The caller asks again while its wait lasts; a leader, until it has it. */
export interface LeaseUnreachable extends LeaseEvent {
  readonly error: unknown
}

/** A heartbeat was answered. `unknown`: not this time; it is tried again. */
export interface LeaseRenewed extends LeaseEvent {
  readonly fence: bigint
  readonly outcome: 'renewed' | 'unknown'
}

/** The holder cannot count on the lease any more. */
export interface LeaseLostEvent extends LeaseEvent {
  readonly fence: bigint
  readonly heldMs: number
  readonly reason: LeaseLostReason
}

/** A lease was released. */
export interface LeaseReleased extends LeaseEvent {
  readonly fence: bigint
  readonly heldMs: number
}

/** Events of one shard were delivered together. */
export interface OutboxDelivered {
  readonly schema: string
  readonly dispatcher: string
  readonly shard: number
  readonly events: readonly {
    readonly topic: string
    readonly key: string
    readonly seq: number
    readonly enqueuedAt: Date
    readonly headers: Readonly<Record<string, string>>
  }[]
  readonly tookMs: number
}

/** A stream waits, because an event of it was not taken. `blocked`: for an operator. */
export interface OutboxParked {
  readonly schema: string
  readonly dispatcher: string
  readonly topic: string
  readonly key: string
  readonly seq: number
  readonly attempts: number
  readonly reason: string
  readonly state: 'parked' | 'blocked'
}

/** A stream that waited has caught up. */
export interface OutboxUnparked {
  readonly schema: string
  readonly dispatcher: string
  readonly topic: string
  readonly key: string
}

/** Nothing gets through to the sink, or something does again. */
export interface OutboxSinkChanged {
  readonly schema: string
  readonly dispatcher: string
  readonly sink: string
  readonly reason: string
}

/** A process has taken a shard, or has let it go. */
export interface OutboxShardChanged {
  readonly schema: string
  readonly dispatcher: string
  readonly shard: number
  readonly fence: bigint
}

/**
 * A dispatcher goes on in another generation: a standby was promoted, or the database was restored. What the old server had sent and the new
 * one does not have gets its numbers again.
 */
export interface OutboxHistoryChanged {
  readonly schema: string
  readonly dispatcher: string
  readonly from: { readonly history: string; readonly generation: number }
  readonly to: { readonly history: string; readonly generation: number; readonly timeline: number }
}

/** A dispatcher has another list of topics than the process that starts, which waits until no process with that list runs. */
export interface OutboxTopicsHeld {
  readonly schema: string
  readonly dispatcher: string
  /** The list that it has; undefined: all topics. */
  readonly from: readonly string[] | undefined
  /** The list of the process that waits. */
  readonly to: readonly string[] | undefined
}

/** The topics of a dispatcher were changed. */
export interface OutboxTopicsChanged extends OutboxTopicsHeld {
  /** Every event with a larger position is under the new list. 0: it begins with the oldest event. */
  readonly topicsAfter: number
}

/** A dispatcher could not read or maintain its shards; it tries again. */
export interface OutboxFailed {
  readonly schema: string
  readonly dispatcher: string
  readonly error: unknown
}

/** A consumer of a broker has applied events, or had before: they were acknowledged. */
export interface ConsumerApplied {
  readonly schema: string
  readonly consumer: string
  /** What the events come from: `redis`, `nats`, `rabbitmq`, `kafka` or `webhook`. */
  readonly source: string
  readonly events: OutboxDelivered['events']
  readonly tookMs: number
}

/** A stream of a consumer waits: for another try of its next event, or for the number that is missing. */
export interface ConsumerStopped {
  readonly schema: string
  readonly consumer: string
  readonly source: string
  readonly topic: string
  readonly key: string
  readonly seq: number
  readonly kind: 'failed' | 'gap' | 'diverged' | 'unavailable'
  readonly reason: string
  readonly attempts: number
}

/** A consumer could not read, acknowledge, or make sense of a message; it continues. */
export interface ConsumerFailed {
  readonly schema: string
  readonly consumer: string
  readonly source: string
  readonly error: unknown
}

/** A migration was applied. */
export interface MigrationApplied {
  readonly schema: string
  readonly version: number
  readonly name: string
}

function eventChannel<Message>(name: string): EventChannel<Message> {
  // A real channel: its messages are untyped to Node, typed to us.
  return channel(`lockstep:${name}`) as unknown as EventChannel<Message>
}

export const lockRequested = eventChannel<LockRequested>('lock.requested')
export const lockContended = eventChannel<LockContended>('lock.contended')
export const lockAcquired = eventChannel<LockAcquired>('lock.acquired')
export const lockTimedOut = eventChannel<LockTimedOut>('lock.timedOut')
export const lockRefused = eventChannel<LockRefused>('lock.refused')
export const lockAbandoned = eventChannel<LockAbandoned>('lock.abandoned')
export const lockReleased = eventChannel<LockReleased>('lock.released')
export const lockSlow = eventChannel<LockSlow>('lock.slow')
export const lockWouldWait = eventChannel<LockWouldWait>('lock.wouldWait')
export const rolloutSwitchedBack = eventChannel<RolloutSwitchedBack>('rollout.switchedBack')
export const guardRefused = eventChannel<GuardRefused>('guard.refused')
export const rolloutDuplicateFound = eventChannel<RolloutDuplicateFound>('rollout.duplicateFound')
export const transactionRetried = eventChannel<TransactionRetried>('transaction.retried')
export const commitResolved = eventChannel<CommitResolved>('commit.resolved')
export const rowsOutOfOrder = eventChannel<RowsOutOfOrder>('rows.outOfOrder')
export const combineBatch = eventChannel<CombineBatch>('combine.batch')
export const combineRefused = eventChannel<CombineRefused>('combine.refused')
export const leaseAcquired = eventChannel<LeaseAcquired>('lease.acquired')
export const leaseRefused = eventChannel<LeaseRefused>('lease.refused')
export const leaseSlow = eventChannel<LeaseSlow>('lease.slow')
export const leaseWouldWait = eventChannel<LeaseWouldWait>('lease.wouldWait')
export const leaseUnreachable = eventChannel<LeaseUnreachable>('lease.unreachable')
export const leaseRenewed = eventChannel<LeaseRenewed>('lease.renewed')
export const leaseLost = eventChannel<LeaseLostEvent>('lease.lost')
export const leaseReleased = eventChannel<LeaseReleased>('lease.released')
export const outboxDelivered = eventChannel<OutboxDelivered>('outbox.delivered')
export const outboxParked = eventChannel<OutboxParked>('outbox.parked')
export const outboxUnparked = eventChannel<OutboxUnparked>('outbox.unparked')
export const outboxSinkDown = eventChannel<OutboxSinkChanged>('outbox.sinkDown')
export const outboxSinkUp = eventChannel<OutboxSinkChanged>('outbox.sinkUp')
export const outboxShardTaken = eventChannel<OutboxShardChanged>('outbox.shardTaken')
export const outboxShardLeft = eventChannel<OutboxShardChanged>('outbox.shardLeft')
export const outboxHistoryChanged = eventChannel<OutboxHistoryChanged>('outbox.historyChanged')
export const outboxTopicsHeld = eventChannel<OutboxTopicsHeld>('outbox.topicsHeld')
export const outboxTopicsChanged = eventChannel<OutboxTopicsChanged>('outbox.topicsChanged')
export const outboxFailed = eventChannel<OutboxFailed>('outbox.failed')
export const consumerApplied = eventChannel<ConsumerApplied>('consumer.applied')
export const consumerStopped = eventChannel<ConsumerStopped>('consumer.stopped')
export const consumerFailed = eventChannel<ConsumerFailed>('consumer.failed')
export const migrationApplied = eventChannel<MigrationApplied>('migration.applied')

/** Every event by its name, for those who want them all. */
export const events = {
  'lock.requested': lockRequested,
  'lock.contended': lockContended,
  'lock.acquired': lockAcquired,
  'lock.timedOut': lockTimedOut,
  'lock.refused': lockRefused,
  'lock.abandoned': lockAbandoned,
  'lock.slow': lockSlow,
  'lock.wouldWait': lockWouldWait,
  'lock.released': lockReleased,
  'transaction.retried': transactionRetried,
  'commit.resolved': commitResolved,
  'rollout.switchedBack': rolloutSwitchedBack,
  'rollout.duplicateFound': rolloutDuplicateFound,
  'guard.refused': guardRefused,
  'rows.outOfOrder': rowsOutOfOrder,
  'combine.batch': combineBatch,
  'combine.refused': combineRefused,
  'lease.acquired': leaseAcquired,
  'lease.refused': leaseRefused,
  'lease.slow': leaseSlow,
  'lease.wouldWait': leaseWouldWait,
  'lease.unreachable': leaseUnreachable,
  'lease.renewed': leaseRenewed,
  'lease.lost': leaseLost,
  'lease.released': leaseReleased,
  'outbox.delivered': outboxDelivered,
  'outbox.parked': outboxParked,
  'outbox.unparked': outboxUnparked,
  'outbox.sinkDown': outboxSinkDown,
  'outbox.sinkUp': outboxSinkUp,
  'outbox.shardTaken': outboxShardTaken,
  'outbox.shardLeft': outboxShardLeft,
  'outbox.historyChanged': outboxHistoryChanged,
  'outbox.topicsHeld': outboxTopicsHeld,
  'outbox.topicsChanged': outboxTopicsChanged,
  'outbox.failed': outboxFailed,
  'consumer.applied': consumerApplied,
  'consumer.stopped': consumerStopped,
  'consumer.failed': consumerFailed,
  'migration.applied': migrationApplied,
} as const

/** The name of an event. */
export type EventName = keyof typeof events

/** The message of the event of that name. */
export type EventMessage<Name extends EventName> =
  (typeof events)[Name] extends EventChannel<infer Message> ? Message : never

/**
 * Listens to one event; the answer stops it.
 *
 * @example
 * const stop = on('lock.acquired', ({ keys, waitMs }) => log.debug({ keys, waitMs }))
 */
export function on<Name extends EventName>(name: Name, listener: (message: EventMessage<Name>) => void): () => void {
  const found = events[name] as unknown as EventChannel<EventMessage<Name>>
  // Node passes the channel's name as a second argument; the listener gets a function of its own so that stopping one never stops another.
  const own = (message: EventMessage<Name>): void => listener(message)
  found.subscribe(own)
  return () => void found.unsubscribe(own)
}
