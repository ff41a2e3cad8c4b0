import { ConnectionLost } from '../errors.ts'
import { type LockSet, type Patience, terminateStranded, unlockLeftovers } from '../locks/index.ts'
import { codeOf, type Connection, type Driver, LOCK_NOT_AVAILABLE } from '../postgres/index.ts'
import { ROLLBACK } from './transactions.sql.ts'

/** Gets a connection, or gives up when the patience ends; one that comes too late goes straight back. */
export async function checkout(driver: Driver, patience: Patience, locks: LockSet): Promise<Connection> {
  const pending = driver.connect()
  const { signal } = patience
  return new Promise<Connection>((resolve, reject) => {
    let gaveUp = false
    const onAbort = (): void => {
      gaveUp = true
      reject(patience.failure('connection', locks))
    }
    if (signal.aborted) onAbort()
    else signal.addEventListener('abort', onAbort, { once: true })
    pending.then(
      (connection) => {
        signal.removeEventListener('abort', onAbort)
        if (gaveUp) connection.release()
        else resolve(connection)
      },
      (error: unknown) => {
        signal.removeEventListener('abort', onAbort)
        reject(error as Error)
      },
    )
  })
}

/** Waits for an answer, but not for ever: a connection that is silent for this long is as good as lost. */
export async function answered<T>(pending: Promise<T>, silenceMs: number): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const silence = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(
        new ConnectionLost(`The server has not answered for ${Math.round(silenceMs)} ms.`, {
          advice: 'Look at the network between here and the server, and at the server itself.',
        }),
      )
    }, silenceMs)
  })
  try {
    return await Promise.race([pending, silence])
  } finally {
    clearTimeout(timer)
  }
}

/** True where the connection is gone or its state cannot be known: nothing more may be sent through it. */
export function isUnusable(connection: Connection, error: unknown): boolean {
  return connection.lost || error instanceof ConnectionLost || codeOf(error) === undefined
}

/** Ends the transaction and gives the connection back; where that cannot be confirmed, the server ends it with the session. */
export async function rollBack(connection: Connection, silenceMs: number): Promise<void> {
  if (connection.lost) return connection.destroy()
  try {
    await answered(connection.script(ROLLBACK), silenceMs)
    connection.release()
  } catch {
    connection.destroy()
  }
}

/**
 * Cleans up after a hand-over that failed. A lock that was not granted leaves nothing but an open transaction. Any other error
 * may have struck between its two transactions, when the locks were the session's.
 */
export async function cleanUpHandOver(connection: Connection, locks: LockSet, error: unknown, silenceMs: number): Promise<void> {
  if (isUnusable(connection, error)) return connection.destroy()
  if (codeOf(error) === LOCK_NOT_AVAILABLE) return rollBack(connection, silenceMs)
  try {
    await answered(connection.script(`${ROLLBACK}; ${unlockLeftovers(locks)}`), silenceMs)
    // A direct connection has just answered for its own session; behind a pooler that was perhaps another one.
    if (connection.memory?.pooled !== false) await answered(connection.script(terminateStranded(locks)), silenceMs)
    connection.release()
  } catch {
    connection.destroy()
  }
}
