import { DriverUnsupported, PoolClosed } from '../errors.ts'
import type { Connection, ConnectionMemory, Driver, StatementResult } from './connection.ts'
import { codeOf, meansConnectionLost } from './sqlstate.ts'
import { PROBE } from './postgres.sql.ts'

/** A pending query of postgres.js. */
interface PostgresJsQuery extends PromiseLike<unknown> {
  execute(): PostgresJsQuery
  cancel(): unknown
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

function toStatementResult(result: PostgresJsResult): StatementResult {
  return { rows: Array.from(result), rowCount: result.count ?? result.length, command: result.command ?? '' }
}

/** The seam on postgres.js. */
export function postgresJsDriver(sql: PostgresJs): Driver {
  const memories = new WeakMap<PhysicalConnection, ConnectionMemory>()
  return {
    name: 'postgres',
    poolSize: sql.options.max ?? POSTGRES_JS_DEFAULT_POOL_SIZE,
    async connect() {
      const reserved = await reserveUnlessEnded(sql)
      return new PostgresJsConnection(reserved, memories, () => reserved.release())
    },
    wrap(client) {
      return new PostgresJsConnection(client as PostgresJsClient, undefined, () => undefined)
    },
  }
}

async function reserveUnlessEnded(sql: PostgresJs): Promise<PostgresJsReserved> {
  const reserving = sql.reserve()
  let timer: NodeJS.Timeout | undefined
  const ended = new Promise<never>((_, reject) => {
    const probe = (): void => {
      const query = sql.unsafe(PROBE) as PostgresJsQuery
      query.execute().then(
        () => undefined,
        (error: unknown) => {
          if (codeOf(error) === 'CONNECTION_ENDED') reject(error as Error)
        },
      )
      // Where the pool is merely busy the probe is taken out of its queue again, unsent.
      setImmediate(() => query.cancel())
      timer = setTimeout(probe, ENDED_PROBE_MS)
    }
    timer = setTimeout(probe, ENDED_PROBE_MS)
  })
  try {
    return await Promise.race([reserving, ended])
  } catch (error) {
    if (codeOf(error) !== 'CONNECTION_ENDED') throw error
    throw new PoolClosed('The postgres.js pool was ended.', {
      advice: 'Create a new one, or call lockstep.close() before sql.end().',
      cause: error,
    })
  } finally {
    clearTimeout(timer)
  }
}

class PostgresJsConnection implements Connection {
  lost = false
  protocolPid: number | undefined
  memory: ConnectionMemory | undefined
  readonly client: PostgresJsClient
  readonly #memories: WeakMap<PhysicalConnection, ConnectionMemory> | undefined
  readonly #giveBack: () => void
  #physical: PhysicalConnection | undefined
  #closed = false
  #returned = false

  constructor(
    client: PostgresJsClient,
    memories: WeakMap<PhysicalConnection, ConnectionMemory> | undefined,
    giveBack: () => void,
  ) {
    this.client = client
    this.#memories = memories
    this.#giveBack = giveBack
  }

  async script(text: string): Promise<StatementResult[]> {
    const capture = this.#memories !== undefined && this.#physical === undefined
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
    if (this.#closed || this.#memories === undefined) return
    if (this.#physical) this.#physical.onclose = null
    if (destroy && this.#physical) this.#physical.terminate()
    else this.#giveBack()
  }

  /**
   * postgres.js reconnects a lost connection in place and may hand it to another caller while we still hold the reserved
   * handle; a query through ours would then run in a stranger's transaction. Its close hook is the only warning.
   */
  readonly #capture = (physical: PhysicalConnection): boolean => {
    this.#physical = physical
    let memory = this.#memories?.get(physical)
    if (memory === undefined) this.#memories?.set(physical, (memory = {}))
    this.memory = memory
    physical.onclose = () => {
      this.lost = true
      this.#closed = true
      this.#memories?.delete(physical)
    }
    return true
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
