import { PoolClosed } from '../errors.ts'
import { alreadyLost, type Connection, type ConnectionMemory, type Driver, type StatementResult } from './connection.ts'

/** The part of a `pg` client that Lockstep uses. */
export interface PgClient {
  query(text: string, values?: unknown[]): Promise<unknown>
  on(event: 'error' | 'end', listener: (error?: Error) => void): unknown
  removeListener(event: 'error' | 'end', listener: (error?: Error) => void): unknown
  readonly processID?: number | null
}

/** A `pg` client that came from a pool. */
export interface PgPoolClient extends PgClient {
  release(destroy?: boolean | Error): void
}

/** The part of a `pg` pool that Lockstep uses. */
export interface PgPool {
  connect(): Promise<PgPoolClient>
  readonly options?: { readonly max?: number }
  readonly ending?: boolean
  readonly ended?: boolean
}

/** `pg`'s own default for a pool's size. */
const PG_DEFAULT_POOL_SIZE = 10

interface PgResult {
  readonly rows?: Record<string, unknown>[]
  readonly rowCount?: number | null
  readonly command?: string
}

function toStatementResult(result: PgResult): StatementResult {
  return { rows: result.rows ?? [], rowCount: result.rowCount ?? 0, command: result.command ?? '' }
}

/** The seam on `pg`. */
export function pgDriver(pool: PgPool): Driver {
  const memories = new WeakMap<PgClient, ConnectionMemory>()

  function memoryOf(client: PgClient): ConnectionMemory {
    let memory = memories.get(client)
    if (memory === undefined) memories.set(client, (memory = {}))
    return memory
  }

  return {
    name: 'pg',
    poolSize: pool.options?.max ?? PG_DEFAULT_POOL_SIZE,
    async connect() {
      if (pool.ending === true || pool.ended === true) {
        throw new PoolClosed('The pg pool was ended.', { advice: 'Create a new pool, or call lockstep.close() before pool.end().' })
      }
      const client = await pool.connect()
      return new PgConnection(client, memoryOf(client), (destroy) => client.release(destroy))
    },
    wrap(client) {
      return new PgConnection(client as PgClient, {}, () => undefined)
    },
  }
}

class PgConnection implements Connection {
  lost = false
  readonly client: PgClient
  readonly memory: ConnectionMemory
  readonly #giveBack: (destroy: boolean) => void
  #returned = false
  /** Without a listener a checked-out client's error event would end the process. */
  readonly #onLost = (): void => {
    this.lost = true
  }

  constructor(client: PgClient, memory: ConnectionMemory, giveBack: (destroy: boolean) => void) {
    this.client = client
    this.memory = memory
    this.#giveBack = giveBack
    client.on('error', this.#onLost)
    client.on('end', this.#onLost)
  }

  get protocolPid(): number | undefined {
    return this.client.processID ?? undefined
  }

  async script(text: string): Promise<StatementResult[]> {
    if (this.lost) throw alreadyLost()
    const result = (await this.client.query(text)) as PgResult | PgResult[]
    return Array.isArray(result) ? result.map(toStatementResult) : [toStatementResult(result)]
  }

  async query<Row>(text: string, values: readonly unknown[] = []): Promise<StatementResult<Row>> {
    if (this.lost) throw alreadyLost()
    // An empty list of values still asks for the extended protocol, which refuses several statements in one text.
    const result = (await this.client.query(text, [...values])) as PgResult
    return toStatementResult(result) as StatementResult<Row>
  }

  release(): void {
    this.#return(this.lost)
  }

  destroy(): void {
    this.#return(true)
  }

  #return(destroy: boolean): void {
    if (this.#returned) return
    this.#returned = true
    this.client.removeListener('end', this.#onLost)
    // The pool attaches its own error listener inside release: ours goes only after that, so that no moment is without one.
    this.#giveBack(destroy)
    this.client.removeListener('error', this.#onLost)
  }
}
