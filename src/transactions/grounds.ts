import type { KeyQueue, WaitPlaces } from '../locks/index.ts'
import type { Driver, Readiness } from '../postgres/index.ts'
import type { TransactionDefaults } from './options.ts'

/** What one Lockstep shares among its transactions. */
export interface Grounds {
  readonly driver: Driver
  readonly schema: string
  readonly quotedSchema: string
  readonly queue: KeyQueue
  readonly places: WaitPlaces
  readonly defaults: TransactionDefaults
  /** An answer to BEGIN or COMMIT that has not come for this long means that the connection is lost. */
  readonly silenceMs: number
  /** Aborted by `close()`. */
  readonly closing: AbortSignal
  /** Asked once; a failure is asked again. */
  ready(): Promise<Readiness>
}
