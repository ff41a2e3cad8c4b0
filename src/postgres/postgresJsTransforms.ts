import type { PostgresJs, PostgresJsQuery } from './postgresJsClient.ts'

/** What the owner has postgres.js do to every row. */
interface Transform {
  readonly column: { from?: ((name: string) => string) | undefined }
  readonly row: { from?: ((row: object) => unknown) | undefined }
}

interface PreparedStatement {
  columns?: unknown
}

const bypasses = new WeakMap<PostgresJs, TransformBypass>()

/**
 * Keeps `transform.column` and `transform.row` of postgres.js away from our own rows. (`transform.value` and `types` do not see them:
 * they are read raw.) postgres.js has no option for that, so both functions are replaced by ones that pass our rows by and call the
 * owner's for all others. Which row is ours they know from the query: of ours, postgres.js reads properties that say so a moment before.
 */
export class TransformBypass {
  /** How many names of columns of ours come next. */
  #names = 0
  /** Whether the next row is ours. */
  #row = false
  readonly #hasRows: boolean

  /** Undefined where nothing is transformed. */
  static of(sql: PostgresJs): TransformBypass | undefined {
    const transform = sql.options.transform as Partial<Transform> | undefined
    const known = bypasses.get(sql)
    if (known !== undefined) return known
    if (transform?.column?.from === undefined && transform?.row?.from === undefined) return undefined
    const made = new TransformBypass(transform as Transform)
    bypasses.set(sql, made)
    return made
  }

  private constructor({ column, row }: Transform) {
    const { from: rename } = column
    if (rename !== undefined) {
      column.from = (name) => {
        if (this.#names === 0) return rename(name)
        this.#names--
        return name
      }
    }
    const { from: change } = row
    this.#hasRows = change !== undefined
    if (change !== undefined) {
      row.from = (given) => {
        if (!this.#row) return change(given)
        this.#row = false
        return given
      }
    }
  }

  /** Marks a query as ours, before it is sent. */
  mark(query: PostgresJsQuery): void {
    let statement: PreparedStatement | null = null
    void Object.defineProperty(query, 'statement', {
      get: () => statement,
      set: (given: PreparedStatement | null) => {
        statement = given
        if (given !== null) this.#watch(given)
      },
    })
    if (!this.#hasRows) return
    void Object.defineProperty(query, 'forEachFn', {
      get: () => {
        // Read for each row, and nothing is done before the row is handed to the function above.
        this.#row = true
        return undefined
      },
    })
  }

  /** The list of columns is set, empty, and then filled. One statement is used by all queries of the same text. */
  #watch(statement: PreparedStatement): void {
    let { columns } = statement
    Object.defineProperty(statement, 'columns', {
      configurable: true,
      get: () => columns,
      set: (given: unknown) => {
        columns = given
        this.#names = Array.isArray(given) ? given.length : 0
      },
    })
  }
}
