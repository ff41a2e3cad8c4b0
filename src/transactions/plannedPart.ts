import type { LockMethod, LockSet } from '../locks/index.ts'
import type { Statement, StatementResult } from '../postgres/index.ts'
import type { Isolation } from './isolation.ts'

/** What a part reads of a call while the call is planned. */
export interface CallToPlan {
  readonly schema: string
  readonly isolation: Isolation
  readonly method: LockMethod
}

/** Reads the one option that a part owns. */
export interface Planner {
  /** The name of the option. It is called only where the caller gave it. */
  readonly option: string
  /** Checks the value, and throws where it is wrong. Nothing was sent yet. Undefined: the call does not need the part. */
  plan(given: unknown, call: CallToPlan): PlannedPart | undefined
}

/** What a part does in one call. All attempts of the call share it, so it has no state. */
export interface PlannedPart<Answer = unknown> {
  /** Locks that it needs beside the caller's. They are taken after those, in this order. */
  readonly locks?: LockSet
  /** Statements of a hand-over that read before the snapshot is taken, under the locks. Each ends with a semicolon. */
  beforeSnapshot?(): string
  /** What it adds to the statement that reports the locks as granted. */
  readonly opening?: OpeningSql
  /** Reads the answers to the opening message, once all locks are granted. `tx.answerOf()` gives what it returns. */
  accept?(results: readonly StatementResult[]): Answer
  /** Refuses a part of a transaction (`tx.transaction()`) for which the transaction was not opened. */
  refuseUnlessCovered?(outer: readonly PlannedPart[], keys: readonly string[]): void
  /** Calls `report` if an attempt waits for its locks for longer than that. */
  readonly longWait?: { readonly afterMs: number; report(): void }
}

/** A message with it is text of its own: the server does not keep it as a prepared statement. */
export interface OpeningSql {
  /** Statements right before it. Each ends with a semicolon. */
  readonly before: string
  /** Columns of it, by names that nothing else has. */
  readonly columns: string
}

/** What a part keeps for COMMIT. A savepoint has its own until it is released; rolled back, it is dropped. */
export interface KeptWork {
  /** Statements that are sent with COMMIT, after those of `queryAtCommit`. */
  statements(): readonly Statement[]
  /** Takes over what a savepoint has kept, which was released. */
  append(inner: KeptWork): void
  /**
   * The server has confirmed COMMIT, or its answer was lost and the transaction has committed, or may have. Called once at most, after a
   * while where the outcome had to be found out. It is a hint: a process that dies first does not call it, and the outcome can be unknown.
   */
  committed(): void
}

export const NO_PARTS: readonly PlannedPart[] = []
