import { LockstepError } from '../errors.ts'
import type { Connection, Driver } from './connection.ts'

/**
 * Lends a connection for one piece of work. After an error that is not ours its state is not known, a transaction may still be
 * open on it: then it does not go back to the pool.
 */
export async function withConnection<T>(driver: Driver, work: (connection: Connection) => Promise<T>): Promise<T> {
  const connection = await driver.connect()
  try {
    const value = await work(connection)
    connection.release()
    return value
  } catch (error) {
    if (error instanceof LockstepError) connection.release()
    else connection.destroy()
    throw error
  }
}
