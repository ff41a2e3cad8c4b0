import { ConnectionLost } from '../errors.ts'
import { type LockSet, type Patience, terminateStranded, unlockLeftovers } from '../locks/index.ts'
import { codeOf, type Connection, type Driver, LOCK_NOT_AVAILABLE, type SilenceWatch } from '../postgres/index.ts'
import { ROLLBACK } from './transactions.sql.ts'

/** Gets a connection, or gives up when the patience ends; one that comes too late goes straight back. */
export function checkout(driver: Driver, patience: Patience, locks: LockSet): Promise<Connection> {
  // A pool with an idle connection gives it at once: no clock needs to be set.
  if (driver.hasIdle() && !patience.aborted) return driver.connect()
  return new Promise<Connection>((resolve, reject) => {
    let gaveUp = false
    const forget = patience.onEnd(() => {
      gaveUp = true
      reject(patience.failure('connection', locks))
    })
    driver.connect().then(
      (connection) => {
        forget()
        if (gaveUp) connection.release()
        else resolve(connection)
      },
      (error: Error) => {
        forget()
        reject(error)
      },
    )
  })
}

/** Waits for something else that needs a connection, as long as the patience lasts. */
export function patiently<T>(pending: Promise<T>, patience: Patience, locks: LockSet): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const forget = patience.onEnd(() => reject(patience.failure('connection', locks)))
    pending.then(resolve, reject).finally(forget)
  })
}

/** True where the connection is gone or its state cannot be known: nothing more may be sent through it. */
export function isUnusable(connection: Connection, error: unknown): boolean {
  return connection.lost || error instanceof ConnectionLost || codeOf(error) === undefined
}

/** What the server said before it closed a connection that is lost, where the driver tells. Nothing is sent through one. */
export async function lastWords(connection: Connection): Promise<unknown> {
  const refusal = await connection.script(ROLLBACK).catch((error: unknown) => error)
  return refusal instanceof ConnectionLost ? refusal.cause : undefined
}

/** Ends the transaction and gives the connection back; where that cannot be confirmed, the server ends it with the session. */
export async function rollBack(connection: Connection, silence: SilenceWatch): Promise<void> {
  if (connection.lost) return connection.destroy()
  try {
    await silence.script(connection, ROLLBACK)
    connection.release()
  } catch {
    connection.destroy()
  }
}

/**
 * Cleans up after a hand-over that failed. A lock that was not granted leaves nothing but an open transaction. Any other error
 * may have struck between its two transactions, when the locks were the session's.
 */
export async function cleanUpHandOver(
  connection: Connection,
  locks: LockSet,
  error: unknown,
  silence: SilenceWatch,
): Promise<void> {
  if (isUnusable(connection, error)) return connection.destroy()
  if (codeOf(error) === LOCK_NOT_AVAILABLE || locks.length === 0) return rollBack(connection, silence)
  try {
    await silence.script(connection, `${ROLLBACK}; ${unlockLeftovers(locks)}`)
    // A direct connection has just answered for its own session; behind a pooler that was perhaps another one.
    if (connection.memory?.pooled !== false) await silence.script(connection, terminateStranded(locks))
    connection.release()
  } catch {
    connection.destroy()
  }
}
