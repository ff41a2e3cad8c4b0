import type { PostgresCursor, PostgresCursorConstructor, PostgresPool, PostgresPoolClient } from 'kysely'
import type { OrmDriverName } from './ormTransaction.ts'

/** What Kysely's own driver sends statements with. */
type Query = PostgresPoolClient['query']

/** A client of `pg`. */
interface PgClient {
  readonly query: Query
}

/** A `sql` of postgres.js. */
interface Sql {
  unsafe(text: string, values: unknown[]): PromiseLike<SqlResult> & { cursor(rows: number): AsyncIterable<object[]> }
}

type SqlResult = object[] & { readonly command: string; readonly count: number | null }

/** A pool whose one client is never released. */
export function poolOfOne(client: unknown, driver: OrmDriverName): PostgresPool {
  const one: PostgresPoolClient = { query: queryOf(client, driver), release: () => undefined }
  return { connect: () => Promise.resolve(one), end: () => Promise.resolve() }
}

/** A pool whose clients share the connection, each with transactions of its own. */
export function poolOfCheckouts(client: unknown, driver: OrmDriverName): PostgresPool {
  const checkout = (): Promise<{ release(): void }> =>
    driver === 'pg'
      ? (client as { connect(): Promise<{ release(): void }> }).connect()
      : (client as { reserve(): Promise<{ release(): void }> }).reserve()
  return {
    async connect() {
      const own = await checkout()
      return { query: queryOf(own, driver), release: () => own.release() }
    },
    end: () => Promise.resolve(),
  }
}

function queryOf(client: unknown, driver: OrmDriverName): Query {
  if (driver === 'postgres.js') return queryOnPostgresJs(client as Sql)
  const { query } = client as PgClient
  return query
}

/** As the dialect kysely-postgres-js does it. */
function queryOnPostgresJs(sql: Sql): Query {
  const query = (given: string | PostgresJsCursor<unknown>, parameters: readonly unknown[] = []): unknown => {
    if (typeof given === 'string') return ask(sql, given, parameters)
    given.sql = sql
    return given
  }
  return query as Query
}

async function ask(sql: Sql, text: string, parameters: readonly unknown[]): Promise<object> {
  const rows = await sql.unsafe(text, [...parameters])
  return { command: rows.command, rowCount: rows.count ?? 0, rows: [...rows] }
}

class PostgresJsCursor<T> implements PostgresCursor<T> {
  sql: Sql | undefined
  readonly #text: string
  readonly #values: unknown[]
  #rows: AsyncIterator<object[]> | undefined

  constructor(text: string, values: unknown[]) {
    this.#text = text
    this.#values = values
  }

  async read(rowsCount: number): Promise<T[]> {
    this.#rows ??= this.sql?.unsafe(this.#text, this.#values).cursor(rowsCount)[Symbol.asyncIterator]()
    const next = await this.#rows?.next()
    return next === undefined || next.done === true ? [] : ([...next.value] as T[])
  }

  async close(): Promise<void> {
    await this.#rows?.return?.()
  }
}

/** postgres.js has cursors of its own; for `pg` the caller brings pg-cursor. */
export const postgresJsCursor: PostgresCursorConstructor = PostgresJsCursor
