import type { LockSet } from './lockSet.ts'

/** How keys are locked: with advisory locks, or with a row for each where there are none. */
export type Strategy = 'advisory' | 'table'

/** The SQL of a strategy, and what it can do. */
export interface LockMethod {
  readonly name: Strategy
  /** Whether a session can hold a lock beside its transaction, as the server's list of locks shows. Only such a lock can be had before a snapshot. */
  readonly heldBySession: boolean
  /** An expression: `granted` where all locks were free, null where one was not. */
  tryLocks(locks: LockSet, granted: string): string
  /** The same as a statement that the server can keep. Undefined: there is none. */
  readonly byParameter?: LocksByParameter
  /** Statements that wait for the locks, `waitMs` at most. */
  waitForLocks(locks: LockSet, waitMs: number, reportsWaiting: boolean): string
  /** How it is found out that a lock has yet to be made. Undefined: every lock exists. */
  readonly missing?: MissingLocks
}

/** Tries locks whose ids are the parameters from $1 on: one text for all locks of a kind. */
export interface LocksByParameter {
  readonly tryLocks: (locks: LockSet, granted: string) => string
  /** The texts that were made with it, by their shape: who looks one up gets the same string again. */
  readonly texts: Map<number, string>
}

/** A lock that is not there yet is not held by another session, but it cannot be had without waiting. */
export interface MissingLocks {
  /** A column beside `tryLocks`. */
  column(locks: LockSet): string
  /** Whether that column says that one of the locks is not there. */
  isIn(row: object, locks: LockSet): boolean
}
