import { LockTimeoutError } from '../errors.ts'
import { type Connection, type Driver, SilenceWatch, withConnection } from '../postgres/index.ts'

/** How long one message may take. */
export interface Limits {
  /** To get a connection from the pool. */
  readonly connectMs: number
  /** From then to the answer. */
  readonly answerMs: number
}

/** A timer may go off a moment before its time. */
const EARLY_MS = 2

/**
 * Does a piece of work on a connection of the pool. Where none comes in time, that is `LockTimeoutError` for a connection: nothing was sent,
 * and the database has said nothing.
 */
export async function send<T>(
  driver: Driver,
  { connectMs, answerMs }: Limits,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  const startedAt = performance.now()
  let connected = false
  const onConnection = (connection: Connection): Promise<T> => {
    connected = true
    return work(connection)
  }
  try {
    return await withConnection(driver, onConnection, new SilenceWatch(answerMs), connectMs)
  } catch (error) {
    const waitedMs = performance.now() - startedAt
    throw !connected && waitedMs >= connectMs - EARLY_MS ? noFreeConnection(waitedMs, error) : error
  }
}

function noFreeConnection(waitedMs: number, cause: unknown): LockTimeoutError {
  return new LockTimeoutError(
    `The pool had no free connection within ${Math.round(waitedMs)} ms, or the server did not answer.`,
    {
      advice: 'Nothing was sent. Make the pool larger, or what uses it shorter.',
      waitedMs: Math.round(waitedMs),
      waitedFor: 'connection',
      holders: [],
      cause,
    },
  )
}
