import type { Trace } from './open.ts'
import type { KeptWork } from './plannedPart.ts'

/** How an attempt ended. `failed` certainly wrote nothing; `uncertain` lost its connection after COMMIT was sent. */
export type Attempt<T> = { readonly end: 'committed'; readonly value: T } | Failure | Uncertain<T>

export interface Uncertain<T> {
  readonly end: 'uncertain'
  readonly value: T
  readonly error: unknown
  readonly trace: Trace | undefined
  /** What the parts kept for COMMIT: they are called back unless it turns out to be rolled back. */
  readonly work: readonly KeptWork[] | undefined
}

export interface Failure {
  readonly end: 'failed'
  readonly error: unknown
  readonly lost: boolean
  readonly trace: Trace | undefined
  /** The function has not run. Until it has, the next attempt has no more of the wait budget than is left. */
  readonly neverRan?: true
}
