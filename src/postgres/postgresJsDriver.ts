import { DriverUnsupported, PoolClosed } from '../errors.ts'
import { alreadyLost, type Connection, type ConnectionMemory, type Driver, type StatementResult } from './connection.ts'
import { codeOf, meansConnectionLost } from './sqlstate.ts'
import { PROBE } from './postgres.sql.ts'

/** A pending query of postgres.js. */
interface PostgresJsQuery extends PromiseLike<unknown> {
  execute(): PostgresJsQuery
}

/** A `sql` of postgres.js that stands for one connection: reserved, or inside `sql.begin()`. */
export interface PostgresJsClient {
  unsafe(text: string, values?: never[], options?: object): PromiseLike<unknown>
}

/** A `sql` of postgres.js reserved from its pool. */
export interface PostgresJsReserved extends PostgresJsClient {
  release(): void
}

/** The part of a postgres.js `sql` that Lockstep uses. */
export interface PostgresJs extends PostgresJsClient {
  reserve(): Promise<PostgresJsReserved>
  readonly options: { readonly max?: number }
}

/** What postgres.js hands to `onexecute`, the hook by which its own `begin()` learns which connection it got. */
interface PhysicalConnection {
  onclose?: ((error: unknown) => void) | null
  /** The list of connections in the same state. */
  readonly queue: { remove(connection: PhysicalConnection): unknown }
  connect(query: PromiseLike<unknown>): void
  terminate(): void
}

interface PostgresJsResult extends Array<Record<string, unknown>> {
  readonly command?: string
  readonly count?: number | null
  readonly state?: { readonly pid?: number }
}

const POSTGRES_JS_DEFAULT_POOL_SIZE = 10

/** `reserve()` on an ended pool never settles; after this long we ask the pool whether it has ended. */
const ENDED_PROBE_MS = 200

const ignore = (): void => undefined

function toStatementResult(result: PostgresJsResult): StatementResult {
  return { rows: Array.from(result), rowCount: result.count ?? result.length, command: result.command ?? '' }
}

/** The seam on postgres.js. */
export function postgresJsDriver(sql: PostgresJs): Driver {
  return {
    name: 'postgres',
    poolSize: sql.options.max ?? POSTGRES_JS_DEFAULT_POOL_SIZE,
    async connect() {
      const reserved = await reserveUnlessEnded(sql)
      return new PostgresJsConnection(reserved, { sql, release: () => reserved.release() })
    },
    wrap(client) {
      return new PostgresJsConnection(client as PostgresJsClient, undefined)
    },
  }
}

async function reserveUnlessEnded(sql: PostgresJs): Promise<PostgresJsReserved> {
  const reserving = sql.reserve()
  let timer: NodeJS.Timeout | undefined
  const ended = new Promise<never>((_, reject) => {
    const look = (): void => {
      void hasEnded(sql).then((yes) => {
        if (yes) reject(poolClosed())
      })
      timer = setTimeout(look, ENDED_PROBE_MS)
    }
    timer = setTimeout(look, ENDED_PROBE_MS)
  })
  try {
    return await Promise.race([reserving, ended])
  } catch (error) {
    throw codeOf(error) === 'CONNECTION_ENDED' ? poolClosed(error) : error
  } finally {
    clearTimeout(timer)
  }
}

/** Pools in whose queue a question of ours still stands. */
const asked = new WeakSet<PostgresJs>()

/** An ended pool refuses a query at once; there is no other way to ask. One that is merely busy answers later: nobody waits for it. */
async function hasEnded(sql: PostgresJs): Promise<boolean> {
  if (asked.has(sql)) return false
  asked.add(sql)
  let ended = false
  const query = sql.unsafe(PROBE) as PostgresJsQuery
  const answered = (): void => void asked.delete(sql)
  query.execute().then(answered, (error: unknown) => {
    ended = codeOf(error) === 'CONNECTION_ENDED'
    answered()
  })
  await new Promise((resolve) => setImmediate(resolve))
  return ended
}

function poolClosed(cause?: unknown): PoolClosed {
  return new PoolClosed('The postgres.js pool was ended.', {
    advice: 'Create a new one, or call lockstep.close() before sql.end().',
    cause,
  })
}

class PostgresJsConnection implements Connection {
  lost = false
  protocolPid: number | undefined
  /** For this checkout alone: postgres.js reconnects in place, so the same object may be another connection the next time. */
  readonly memory: ConnectionMemory = {}
  readonly client: PostgresJsClient
  /** The pool it came from; undefined where it is the caller's. */
  readonly #pool: { readonly sql: PostgresJs; release(): void } | undefined
  #physical: PhysicalConnection | undefined
  #closed = false
  #returned = false

  constructor(client: PostgresJsClient, pool: { readonly sql: PostgresJs; release(): void } | undefined) {
    this.client = client
    this.#pool = pool
  }

  async script(text: string): Promise<StatementResult[]> {
    if (this.lost) throw alreadyLost()
    const capture = this.#pool !== undefined && this.#physical === undefined
    const options = capture ? { simple: true, onexecute: this.#capture } : { simple: true }
    const result = (await this.#guarded(this.client.unsafe(text, [], options))) as PostgresJsResult | PostgresJsResult[]
    if (capture && this.#physical === undefined) {
      this.destroy()
      throw new DriverUnsupported('This version of postgres.js does not tell which connection ran a query.', {
        advice: 'Use postgres 3.4, or pg.',
      })
    }
    const results = isSeveral(result) ? result : [result]
    this.protocolPid ??= results[0]?.state?.pid
    return results.map(toStatementResult)
  }

  async query<Row>(text: string, values: readonly unknown[] = []): Promise<StatementResult<Row>> {
    if (this.lost) throw alreadyLost()
    const result = (await this.#guarded(this.client.unsafe(text, [...values] as never[], { simple: false }))) as PostgresJsResult
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
    // A closed connection has already gone back to postgres.js, perhaps to another user: releasing it would give it away twice.
    if (this.#closed || this.#pool === undefined) return
    if (destroy && this.#physical) return this.#physical.terminate()
    if (this.#physical) this.#physical.onclose = null
    this.#pool.release()
  }

  /**
   * postgres.js reconnects a lost connection in place and may hand it to another caller while we still hold the reserved
   * handle; a query through ours would then run in a stranger's transaction. Its close hook is the only warning.
   */
  readonly #capture = (physical: PhysicalConnection): boolean => {
    this.#physical = physical
    physical.onclose = () => {
      this.lost = true
      this.#closed = true
      this.#revive(physical)
    }
    return true
  }

  /**
   * A server that ends a session says why, and postgres.js keeps these last words for whoever opens the connection next. If that
   * is `reserve()`, it fails with them, and the reopened connection is lost to the pool for ever. So we open it again ourselves,
   * with a query that may fail; by then the pool has it back. Where callers wait for a connection, the pool does it for us.
   */
  #revive(physical: PhysicalConnection): void {
    const closedOnes = physical.queue
    // Nobody may take it in the meantime.
    closedOnes.remove(physical)
    void this.#reopen(physical, closedOnes)
  }

  async #reopen(physical: PhysicalConnection, closedOnes: PhysicalConnection['queue']): Promise<void> {
    if (this.#pool === undefined || (await hasEnded(this.#pool.sql)) || physical.queue !== closedOnes) return
    const probe = this.#pool.sql.unsafe(PROBE)
    // Listening the usual way would send it through the pool as well.
    void Promise.prototype.then.call(probe, ignore, ignore)
    physical.connect(probe)
  }

  async #guarded(pending: PromiseLike<unknown>): Promise<unknown> {
    try {
      return await pending
    } catch (error) {
      // The query is rejected a moment before the close hook runs.
      if (meansConnectionLost(error)) this.lost = true
      throw error
    }
  }
}

function isSeveral(result: PostgresJsResult | PostgresJsResult[]): result is PostgresJsResult[] {
  return Array.isArray(result[0])
}
