import { ConnectionLostError, LockTimeoutError } from '../errors.ts'
import type { LockSet, QueueLimit, WaitBudget } from '../locks/index.ts'
import {
  codeOf,
  type Connection,
  type Driver,
  IN_FAILED_TRANSACTION,
  type SilenceWatch,
  withKeys,
} from '../postgres/index.ts'
import type { TransactionPlan } from './options.ts'
import { PROBE, ROLLBACK } from './transactions.sql.ts'

/**
 * Gets a connection, or gives up when the wait budget ends; one that comes too late goes straight back. With a limit, a caller that would
 * have to wait behind too many others fails at once.
 */
export function checkout(driver: Driver, budget: WaitBudget, locks: LockSet, limit?: QueueLimit): Promise<Connection> {
  // A pool with an idle connection gives it at once: no clock needs to be set.
  if (driver.hasIdle() && !budget.aborted) return driver.connect()
  return new Promise<Connection>((resolve, reject) => {
    const refusal = limit?.begin(locks[0]?.key, 0)
    if (refusal !== undefined) return reject(refusal)
    let gaveUp = false
    const forget = budget.onEnd(() => {
      gaveUp = true
      reject(budget.failure('connection', locks))
    })
    // Who gave up still stands in the pool's queue: it is counted until the pool has answered.
    driver.connect().then(
      (connection) => {
        limit?.end()
        forget()
        if (gaveUp) connection.release()
        else resolve(connection)
      },
      (error: Error) => {
        limit?.end()
        forget()
        reject(error)
      },
    )
  })
}

/** The failure of a `checkout()` as its caller's: with the keys of the call, and how long it has waited in all. */
export function checkoutFailed(error: unknown, budget: WaitBudget, locks: LockSet): unknown {
  if (error instanceof LockTimeoutError) return budget.failure('connection', locks, [], error.cause)
  return withKeys(error, keysOf(locks))
}

/** Waits for something else that needs a connection, as long as the wait budget lasts. */
export function withinBudget<T>(pending: Promise<T>, budget: WaitBudget, locks: LockSet): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const forget = budget.onEnd(() => reject(budget.failure('connection', locks)))
    pending.then(resolve, reject).finally(forget)
  })
}

/** Waits for something no longer than that. What comes later is ignored. */
export function within<T>(pending: Promise<T>, milliseconds: number): Promise<T | undefined> {
  if (milliseconds === Infinity) return pending
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => resolve(undefined), milliseconds)
    pending.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}

/** True where the connection is gone or its state cannot be known: nothing more may be sent through it. */
export function isUnusable(connection: Connection, error: unknown): boolean {
  return connection.lost || error instanceof ConnectionLostError || codeOf(error) === undefined
}

/** What the server said before it closed a lost connection, if the driver reports it. Nothing is sent through a lost connection. */
export async function lastServerError(connection: Connection): Promise<unknown> {
  const refusal = await connection.script(ROLLBACK).catch((error: unknown) => error)
  return refusal instanceof ConnectionLostError ? refusal.cause : undefined
}

/**
 * Ends the transaction and releases the connection, or closes it if not `keep`; where that cannot be confirmed, the server ends it with the session. True
 * if it was confirmed.
 */
export async function rollBack(
  connection: Connection,
  silence: SilenceWatch,
  {
    text = ROLLBACK,
    withinMs = Infinity,
    keep = true,
  }: { readonly text?: string; readonly withinMs?: number; readonly keep?: boolean } = {},
): Promise<boolean> {
  try {
    if (!connection.lost) {
      await silence.script(connection, text, 0, withinMs)
      if (keep) connection.release()
      else connection.destroy()
      return true
    }
  } catch {
    // Out of the pool, below.
  }
  connection.destroy()
  return false
}

/**
 * After an error in answer to COMMIT: whether the session continues. Then the connection is back in its pool. A statement that was
 * cancelled before COMMIT could run leaves the transaction open.
 */
export async function isStillAnswering(connection: Connection, silence: SilenceWatch): Promise<boolean> {
  if (connection.lost) return false
  try {
    await silence.script(connection, PROBE)
    connection.release()
    return true
  } catch (error) {
    return codeOf(error) === IN_FAILED_TRANSACTION && rollBack(connection, silence)
  }
}

/** Nothing was written when it is lost there. */
export function lostWhileOpening(plan: TransactionPlan, cause: unknown): ConnectionLostError {
  return new ConnectionLostError('The connection was lost before the transaction was open.', {
    advice: 'Nothing was written; it can be done again.',
    keys: keysOf(plan.locks),
    cause,
  })
}

function keysOf(locks: LockSet): string[] {
  return locks.map((lock) => lock.key)
}
