import type { CompiledQuery, DatabaseConnection, QueryExecutorProvider } from 'kysely'
import { DriverUnsupportedError } from '../errors.ts'

type Callback = (error: unknown, result?: unknown) => void

interface QueryConfig {
  readonly text?: string
  readonly values?: readonly unknown[]
}

/**
 * A client of `pg` that sends through a transaction of Kysely. Kysely keeps its client in a field that nothing outside can read, but
 * passes the statement on as it is: an object as pg's own `query()` takes it, with a callback, goes through as well.
 */
export class KyselyClient {
  readonly #transaction: QueryExecutorProvider

  constructor(transaction: QueryExecutorProvider) {
    this.#transaction = transaction
  }

  query(given: string | QueryConfig, ...rest: unknown[]): void {
    const callback = rest.at(-1) as Callback
    const config = typeof given === 'string' ? { text: given } : given
    const values = Array.isArray(rest[0]) ? rest[0] : (config.values ?? [])
    let reached = false
    const sql = {
      ...config,
      get text() {
        reached = true
        return config.text
      },
      callback,
      // A driver that takes texts alone would send whatever an object is as a text.
      [Symbol.toPrimitive]: () => {
        throw unsupported()
      },
    }
    const query = { sql, parameters: values } as unknown as CompiledQuery
    this.#transaction
      .getExecutor()
      .provideConnection((connection) => executeUnlogged(connection, query))
      .catch((error: unknown) => {
        // Kysely looks for rows in what pg answers by the callback alone, and fails. Every other failure comes before pg has read the text.
        // As pg does: the caller's code does not run in this promise.
        if (!reached) process.nextTick(callback, error instanceof TypeError ? unsupported(error) : error)
      })
  }

  /** The transaction is Kysely's, and so is the end of its connection: a statement after it is refused there. */
  on(): this {
    return this
  }

  removeListener(): this {
    return this
  }
}

/** A log of Kysely's replaces the method on the connection itself. It would report that Kysely found no rows. */
function executeUnlogged(connection: DatabaseConnection, query: CompiledQuery): Promise<unknown> {
  const own = Object.getPrototypeOf(connection) as {
    executeQuery: (this: object, query: CompiledQuery) => Promise<unknown>
  }
  return own.executeQuery.call(connection, query)
}

function unsupported(cause?: unknown): DriverUnsupportedError {
  return new DriverUnsupportedError('The transaction that clientOf() was given does not pass statements on to pg.', {
    advice:
      'Lockstep works with kysely 0.28 and its PostgresDialect on pg. Otherwise open the transaction with lockstep.transaction().',
    cause,
  })
}
