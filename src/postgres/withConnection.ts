import { ConnectionLostError, LockstepError, StandbyRefusedError } from '../errors.ts'
import { alreadyLost, type Connection, type Driver } from './connection.ts'
import { poolExhausted } from './connectFailure.ts'
import type { SilenceWatch } from './silenceWatch.ts'

/**
 * Lends a connection for one piece of work. After an error that is not ours its state is not known, a transaction may still be
 * open on it: then it does not go back to the pool. All of the work must be done before the silence becomes suspicious.
 * `connectMs`: how long the connection itself may take, by default as long as the work.
 */
export async function withConnection<T>(
  driver: Driver,
  work: (connection: Connection) => Promise<T>,
  silence?: SilenceWatch,
  connectMs = silence?.silenceMs,
): Promise<T> {
  const connection = await (connectMs === undefined ? driver.connect() : connectWithin(driver, connectMs))
  const pending = silence?.start(connection)
  try {
    const value = await work(connection)
    connection.release()
    return value
  } catch (error) {
    const { lost } = connection
    // Another connection of the pool may lead to the primary: the address or the list of hosts is asked again.
    if (error instanceof LockstepError && !(error instanceof StandbyRefusedError)) connection.release()
    else connection.destroy()
    throw lost && !(error instanceof LockstepError) ? alreadyLost(error) : error
  } finally {
    if (pending !== undefined) silence?.stop(pending)
  }
}

/** The longest time that a timer of Node can be set to: one that is longer goes off at once. */
export const LONGEST_TIMER_MS = 2_147_483_647

/** A connection within the given time: one that is being opened into a silent network never comes. A late one goes straight back. */
export function connectWithin(
  driver: Pick<Driver, 'connect' | 'isExhausted'>,
  milliseconds: number,
): Promise<Connection> {
  return new Promise((resolve, reject) => {
    let gaveUp = false
    const timer = setTimeout(
      () => {
        gaveUp = true
        reject(driver.isExhausted() ? poolExhausted(milliseconds) : noConnection(milliseconds))
      },
      Math.min(milliseconds, LONGEST_TIMER_MS),
    )
    driver.connect().then(
      (connection) => {
        clearTimeout(timer)
        if (gaveUp) connection.release()
        else resolve(connection)
      },
      (error: Error) => {
        clearTimeout(timer)
        reject(error)
      },
    )
  })
}

function noConnection(milliseconds: number): ConnectionLostError {
  return new ConnectionLostError(`There was no connection within ${milliseconds} ms.`, {
    advice: 'Look at the network between here and the server, and at the size of the pool.',
  })
}
