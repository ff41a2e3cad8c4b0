import type { LockstepContext } from '../transactions/index.ts'
import type { Breaker } from './breaker.ts'
import type { DispatcherPlan } from './dispatcherOptions.ts'
import type { DrainLimit } from './drainLimit.ts'
import type { Reader } from './reader.ts'

/** What the shards of one dispatcher share. */
export interface ShardSetting {
  readonly context: LockstepContext
  readonly plan: DispatcherPlan
  readonly reader: Reader
  readonly breaker: Breaker
  /** Reports a failure after which it continues. */
  readonly failed: (error: unknown) => void
  /** Of a drain, whose shards end when they have nothing more to deliver. */
  readonly limit?: DrainLimit
}
