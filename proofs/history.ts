/**
 * What happened in a run, as each party saw it: the workers what they asked, were granted, read, wrote and received as answers; the
 * world outside what reached it; the database, when all is quiet, what stands in it. Checkers read nothing else, so that what they
 * say can be looked at afterwards.
 *
 * Times are of the machine's monotonic clock, which all its processes share and which cannot be set. A killed worker
 * does not record its end: the outcome of an operation that was asked and has no end is unknown.
 */

/** The two ways to do the same thing: a known recipe, and ours. */
export const FORMS = ['naive', 'lockstep'] as const
export type Form = (typeof FORMS)[number]

export type What =
  /** An operation begins. */
  | 'asked'
  /** It has the lock, the lease, the permit, the office; `fence` if it has one. */
  | 'granted'
  /** It has read `value`. */
  | 'read'
  /** It has written `value`, in a transaction that may still fail. */
  | 'wrote'
  /** It was sure, at this moment, that it holds what it was granted. */
  | 'active'
  /** It releases what it was granted, or has learned that it lost it. */
  | 'released'
  /** It was acknowledged; `value` is its answer. */
  | 'done'
  /** It received an error that says that it did not happen. */
  | 'failed'
  /** It received an error that says that the outcome is unknown. */
  | 'unknown'
  /** The world outside took something: an order, a write, an event. */
  | 'took'
  /** It stands in the database when all is quiet. */
  | 'found'

/** The end of an operation. */
export const ENDS: ReadonlySet<What> = new Set(['done', 'failed', 'unknown'])

export interface Entry {
  /** Microseconds since the run began. */
  readonly at: number
  /** Who saw it: `w2` is the second worker, `w2'` the same after it was killed once; `outside`; `database`. */
  readonly by: string
  readonly scenario: string
  /** The operation: one of a kind in a run. Empty for what no operation did. */
  readonly op: string
  readonly what: What
  /** The wallet, the instance, the stream. */
  readonly key: string
  readonly value?: number | string
  /** The fence or the term of a grant, as a decimal number. */
  readonly fence?: string
  /** The code of an error, a sentence for people. */
  readonly note?: string
}

/** A fault, from when to when, and who was struck. */
export interface FaultEntry {
  readonly at: number
  readonly until: number
  readonly fault: string
  /** The workers, or `database`. */
  readonly on: string
  /** How many operations were in flight there. */
  readonly struck: number
}

/** A promise that was broken. */
export interface Violation {
  /** The checker's name: `mutual exclusion`. */
  readonly invariant: string
  readonly scenario: string
  readonly key: string
  /** What happened, for a person, in one sentence with the names and numbers. */
  readonly text: string
  /** The operations that show it: at most a handful. */
  readonly ops: readonly string[]
  /** Around when, to cut a picture out. */
  readonly at: number
}

/** What one scenario did in one round, in the order of time. */
export interface History {
  readonly scenario: string
  readonly form: Form
  readonly entries: readonly Entry[]
  readonly faults: readonly FaultEntry[]
}

/** Finds what breaks one named invariant. */
export interface Checker {
  readonly name: string
  /** The promise, in a sentence. */
  readonly promise: string
  check(history: History): Violation[]
}
