export * from './errors.ts'
export {
  key,
  type Key,
  type KeyPart,
  type RollbackTriggers,
  type Rollout,
  type RolloutMode,
  type StoredRolloutRule,
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
