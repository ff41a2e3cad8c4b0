import type {
  ConnectionLostError,
  LeaseHeldError,
  LockTimeoutError,
  QueueFullError,
  RetriesExhaustedError,
} from '../errors.ts'

/** The errors of a Lockstep that the guards answer. */
interface ByCode {
  readonly LOCKSTEP_CONNECTION_LOST: ConnectionLostError
  readonly LOCKSTEP_LEASE_HELD: LeaseHeldError
  readonly LOCKSTEP_LOCK_TIMEOUT: LockTimeoutError
  readonly LOCKSTEP_QUEUE_FULL: QueueFullError
  readonly LOCKSTEP_RETRIES_EXHAUSTED: RetriesExhaustedError
}

/**
 * By the code and not by the class: a program can have the library twice. A bundler puts it into each of its bundles, and after a hot reload
 * the guards are of a newer copy than the Lockstep, which stays. An error is then of the class of the other copy.
 */
export function hasCode<Code extends keyof ByCode>(error: unknown, code: Code): error is ByCode[Code] {
  return error instanceof Error && (error as { readonly code?: unknown }).code === code
}
