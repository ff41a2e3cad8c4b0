import type {
  Closing,
  KeyQueue,
  LockMethod,
  QueueLimit,
  RecentContention,
  RecentLockIds,
  ServerWaitSlots,
} from '../locks/index.ts'
import type { Connection, Driver, Readiness, SilenceWatch } from '../postgres/index.ts'
import type { TransactionDefaults } from './options.ts'
import type { InstalledParts } from './part.ts'

/** What one Lockstep shares among its transactions. */
export interface LockstepContext {
  /** The caller's pool: the same for two Locksteps on one. */
  readonly pool: object
  readonly driver: Driver
  readonly schema: string
  readonly quotedSchema: string
  readonly lockIds: RecentLockIds
  readonly queue: KeyQueue
  /** How many calls can wait in this process. */
  readonly limit: QueueLimit
  readonly waitSlots: ServerWaitSlots
  readonly contention: RecentContention
  readonly defaults: TransactionDefaults
  readonly silence: SilenceWatch
  readonly closing: Closing
  /** What the last connection showed: whether it is direct, that is without a pooler. */
  readonly route: { direct: boolean }
  readonly method: LockMethod
  readonly parts: InstalledParts
  /** A wait that lasts longer is reported as slow. */
  readonly slowWaitMs: number
  /** What is known of the server; undefined before the first question. */
  readonly readiness: Readiness | undefined
  /** Asked once; a failure is asked again. */
  ready(): Promise<Readiness>
  /** Looks at a connection on which something else was seen than what is known. */
  know(connection: Connection, known: Readiness): Promise<Readiness>
}
