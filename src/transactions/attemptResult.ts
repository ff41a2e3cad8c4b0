import type { Trace } from './open.ts'

/** How an attempt ended. `failed` certainly wrote nothing; `uncertain` lost its connection after COMMIT was sent. */
export type Attempt<T> =
  | { readonly end: 'committed'; readonly value: T }
  | Failure
  | { readonly end: 'uncertain'; readonly value: T; readonly error: unknown; readonly trace: Trace | undefined }

export interface Failure {
  readonly end: 'failed'
  readonly error: unknown
  readonly lost: boolean
  readonly trace: Trace | undefined
  /** The function has not run. Until it has, the next attempt has no more of the wait budget than is left. */
  readonly neverRan?: true
}
