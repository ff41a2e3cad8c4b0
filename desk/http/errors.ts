import { HTTPException } from 'hono/http-exception'
import {
  CommitOutcomeUnknownError,
  ConnectionLostError,
  InvalidKeyError,
  LeaseHeldError,
  LeaseLostError,
  LeaseTransactionTooLongError,
  LockAbortedError,
  LockstepClosedError,
  LockstepError,
  LockTimeoutError,
  PoolClosedError,
  QueueFullError,
  RetriesExhaustedError,
  RowsLockedError,
} from 'pg-lockstep'
import { ProblemError } from './problem.ts'

/** What the client receives for an error; undefined if it is a fault of our own, which is not shown. */
export function problemOf(error: unknown): ProblemError | undefined {
  if (error instanceof ProblemError) return error
  if (error instanceof HTTPException) return ofHono(error)
  if (error instanceof LockstepError) return ofLockstep(error)
  return isAway(error)
    ? unavailable('The database cannot be reached just now. Nothing is known to be done.')
    : undefined
}

export function internal(): ProblemError {
  return new ProblemError('internal', 'The request id in the answer finds it in the log.')
}

function ofHono(error: HTTPException): ProblemError | undefined {
  const { status, message } = error
  if (status >= 500) return undefined
  if (status === 415) return new ProblemError('unsupported-media-type', 'Send JSON as application/json.')
  if (message.includes('JSON')) return new ProblemError('malformed-json', message)
  return new ProblemError('invalid-request', message || `Status ${status}.`)
}

const INTERRUPTIONS = [
  ConnectionLostError,
  LeaseLostError,
  LeaseTransactionTooLongError,
  LockAbortedError,
  RetriesExhaustedError,
]

function ofLockstep(error: LockstepError): ProblemError | undefined {
  if (error instanceof InvalidKeyError) return new ProblemError('invalid-id', error.message)
  if (error instanceof LeaseHeldError) return busy(Math.max(1, Math.ceil(error.leftMs / 1000)))
  if (error instanceof LockTimeoutError) {
    return error.waitedFor === 'connection'
      ? unavailable('There was no connection in time. Nothing was done.')
      : busy(1)
  }
  if (error instanceof RowsLockedError) return busy(1)
  if (error instanceof QueueFullError) return unavailable('Too many requests wait for this already. Nothing was done.')
  if (error instanceof LockstepClosedError || error instanceof PoolClosedError)
    return unavailable('This process is about to end. Nothing was done.')
  if (error instanceof CommitOutcomeUnknownError) {
    const detail = 'It may be done or not. Ask again with the same Idempotency-Key to find out.'
    return new ProblemError('outcome-unknown', detail, { retryAfterSeconds: 1 })
  }
  if (INTERRUPTIONS.some((kind) => error instanceof kind))
    return unavailable(`It was interrupted (${error.code}). Ask again, with the same Idempotency-Key.`)
  return undefined
}

function busy(retryAfterSeconds: number): ProblemError {
  const detail = 'Another request works on this just now. Try again later.'
  return new ProblemError('busy', detail, { retryAfterSeconds })
}

function unavailable(detail: string): ProblemError {
  return new ProblemError('unavailable', detail, { retryAfterSeconds: 1 })
}

/** The server is shut down, out of connections, or has ended the session; or the network has. */
function isAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const { code } = error as { code?: unknown }
  if (typeof code !== 'string')
    return /connection (terminated|timeout)|timeout exceeded when trying to connect/i.test(error.message)
  return /^(08|53|57P)/.test(code) || /^E(CONN|PIPE|TIMEDOUT|HOSTUNREACH)/.test(code)
}
