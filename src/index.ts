export * from './errors.ts'
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
export { type ClientOf, Lockstep, type LockstepOptions } from './lockstep.ts'
export type { Finding, MigrateOptions, MigrateResult, Pool, StatementResult } from './postgres/index.ts'
export type {
  Isolation,
  JoinOptions,
  RetryOptions,
  Strategy,
  Transaction,
  TransactionOptions,
} from './transactions/index.ts'
