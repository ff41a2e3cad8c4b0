export type { Combined, CombinedCall, CombineOptions } from './combine/index.ts'
export * from './errors.ts'
export type {
  AcceptManyOptions,
  AcceptOptions,
  BatchVerdict,
  HandleOptions,
  Inbox,
  InboxEvent,
  InboxPosition,
  InboxStream,
  InboxTransaction,
  InboxVerdict,
} from './inbox/index.ts'
export {
  type BlockingNode,
  type Claim,
  key,
  type Key,
  type KeyPart,
  type ListedLock,
  type ListedWaiter,
  type ListLocksOptions,
  type LockListing,
  type Locks,
  type RollbackTriggers,
  type Rollout,
  type RolloutMode,
  type StoredRolloutRule,
  type Wanted,
} from './locks/index.ts'
export { type ClientOf, Lockstep } from './lockstep.ts'
export type { LockstepOptions } from './lockstepOptions.ts'
export type {
  ForceReleaseOptions,
  HistoryEntry,
  LeaderOptions,
  Lease,
  LeaseDetails,
  LeaseHolder,
  LeaseInfo,
  LeaseOptions,
  Leases,
  LeaseWaiter,
} from './leases/index.ts'
export type { ActContext, Found, LongOnceOptions, OnceOptions, OnceResult } from './once/index.ts'
export {
  type BatchContext,
  type Delivery,
  type Dispatcher,
  EventRefused,
  type DispatcherOptions,
  type EventHeaders,
  type EventMap,
  type EventOf,
  type EventToEnqueue,
  type GiveUp,
  type OperatorOptions,
  type Outbox,
  type OutboxEvent,
  type OutboxStatus,
  type ParkedStream,
  perEvent,
  type Replayed,
  type ReplayOptions,
  type Rebased,
  type Retained,
  type SegmentStatus,
  type ShardStatus,
  type Sink,
  type SinkFunction,
  type Stream,
} from './outbox/index.ts'
export type { Finding, MigrateOptions, MigrateResult, Pool, StatementResult } from './postgres/index.ts'
export {
  type LockedRows,
  lockRows,
  type LockRowsOptions,
  type RowId,
  type RowIdPart,
  type RowLockMode,
  type TableName,
} from './rows/index.ts'
export type {
  Isolation,
  JoinOptions,
  RetryOptions,
  Strategy,
  Transaction,
  TransactionOptions,
} from './transactions/index.ts'
