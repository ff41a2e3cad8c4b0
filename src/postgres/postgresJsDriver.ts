import { DriverUnsupported } from '../errors.ts'
import {
  alreadyLost,
  alreadyReturned,
  type Commit,
  type Connection,
  type ConnectionMemory,
  type Driver,
  type Statement,
  type StatementResult,
} from './connection.ts'
import { connectFailure } from './connectFailure.ts'
import { COMMIT, PROBE } from './postgres.sql.ts'
import {
  type PhysicalConnection,
  type PostgresJs,
  type PostgresJsClient,
  PostgresJsPool,
  unsupported,
} from './postgresJsPool.ts'
import { endsSession } from './sqlstate.ts'

export type { PostgresJs, PostgresJsClient, PostgresJsReserved } from './postgresJsPool.ts'

/** What the caller has postgres.js do to every row. */
interface Transform {
  readonly column?: { readonly from?: ((name: string) => string) | undefined }
  readonly value?: { readonly from?: ((value: unknown, column: object) => unknown) | undefined }
  readonly row?: { readonly from?: ((row: object) => unknown) | undefined }
}

interface PostgresJsResult extends Array<Record<string, unknown>> {
  readonly command?: string
  readonly count?: number | null
  readonly state?: { readonly pid?: number }
}

/**
 * Of a message that fills the socket's buffer postgres.js does not tell which connection it went to. Node's smallest has 16 KiB,
 * and a character up to 4 bytes.
 */
const MAX_TELLING_CHARACTERS = 4000

function toStatementResult(result: PostgresJsResult): StatementResult {
  // A plain array: theirs carries the connection's secrets along. Array.from and slice take ten times as long on it.
  const rows: Record<string, unknown>[] = []
  for (let index = 0; index < result.length; index++) rows.push(result[index] as Record<string, unknown>)
  return { rows, rowCount: result.count ?? rows.length, command: result.command ?? '' }
}

/** Our own statements name their columns in lower case; the caller may have postgres.js rename them. */
function inOurNames(result: StatementResult): StatementResult {
  const rows = result.rows.map((row) => {
    return Object.fromEntries(Object.entries(row).map(([name, value]) => [name.toLowerCase(), value]))
  })
  return { ...result, rows }
}

/** Without values and options postgres.js sends a plain message. Every option costs: it copies them the slow way, one by one. */
const PREPARED = { prepare: true }
const PREPARED_WITHOUT_VALUES = { simple: false, prepare: true }

type Heard = (payload: string | undefined) => void

/** The seam on postgres.js. */
export function postgresJsDriver(sql: PostgresJs): Driver {
  const transform = (sql.options.transform ?? {}) as Transform
  refuseUnsafe(transform)
  const renames = transform.column?.from !== undefined || transform.row?.from !== undefined
  const pool = PostgresJsPool.of(sql)
  // postgres.js listens on a connection of its own, for as long as it lives: after a reconnect it does not know what to unlisten.
  const listening = new Map<string, Set<Heard>>()
  const memories = new Memories()
  return {
    name: 'postgres',
    poolSize: pool.size,
    hasIdle: () => pool.hasIdle(),
    hasRoom: () => pool.hasRoom(),
    isExhausted: () => pool.isExhausted(),
    connect() {
      return pool.reserve().then(
        (reserved) => {
          const way = { memories, release: () => reserved.release(), leave: () => pool.leave() }
          return new PostgresJsConnection(reserved, renames, way)
        },
        (error: unknown) => {
          throw connectFailure(error)
        },
      )
    },
    async listen(channel, heard) {
      const listeners = listening.get(channel) ?? new Set<Heard>()
      listeners.add(heard)
      try {
        if (!listening.has(channel)) {
          let begun = false
          const tell = (payload?: string): void => listeners.forEach((each) => each(payload))
          await sql.listen(channel, tell, () => {
            // Not the first time: it was away.
            if (begun) tell()
            begun = true
          })
          listening.set(channel, listeners)
        }
      } catch (error) {
        listeners.delete(heard)
        throw error
      }
      return () => Promise.resolve(void listeners.delete(heard))
    },
    wrap(client) {
      return new PostgresJsConnection(client as PostgresJsClient, renames, undefined)
    },
  }
}

/** Refuses what would make a lock that is taken look granted. Renamed columns do no harm. */
function refuseUnsafe({ column, value, row }: Transform): void {
  const name = (plain: string): string => column?.from?.(plain) ?? plain
  const cell = (plain: string | null): unknown => (value?.from ? value.from(plain, { type: 25 }) : plain)
  const sample = { [name('held')]: cell(null), [name('pid')]: cell('42') }
  const seen = Object.entries((row?.from ? row.from(sample) : sample) as object)
  const [held, pid] = seen
  const kept =
    held?.[0].toLowerCase() === 'held' && held[1] === null && pid?.[0].toLowerCase() === 'pid' && pid[1] === '42'
  if (kept && seen.length === 2) return
  throw new DriverUnsupported(
    'The `transform` of this postgres.js changes plain text or null, by which Lockstep tells a granted lock.',
    { advice: 'Give Lockstep a `postgres(…)` of its own, without `transform.value` and `transform.row`.' },
  )
}

/** More connections than a pool ever has; reconnected ones have new numbers. */
const MAX_MEMORIES = 1000

/**
 * What is known of connections, by the process id that the server gave them: postgres.js reconnects in place, so the same object
 * may be another connection the next time. A number that comes up again after a crash brings back a memory of another life;
 * that costs a certain answer about a lost COMMIT, never a right one.
 */
class Memories {
  readonly #byPid = new Map<number, ConnectionMemory>()

  of(pid: number): ConnectionMemory {
    let memory = this.#byPid.get(pid)
    if (memory === undefined) {
      if (this.#byPid.size >= MAX_MEMORIES) this.#byPid.clear()
      this.#byPid.set(pid, (memory = {}))
    }
    return memory
  }
}

/** A query of postgres.js, which knows the server process from when it was sent. */
interface SentQuery {
  readonly state?: { readonly pid?: number | null } | null
}

/** How a connection goes back to where it came from. */
interface WayBack {
  readonly memories: Memories
  release(): void
  /** Lets the next caller in. */
  leave(): void
}

class PostgresJsConnection implements Connection {
  lost = false
  protocolPid: number | undefined
  /** Known once the first message was sent. */
  memory: ConnectionMemory | undefined
  readonly client: PostgresJsClient
  readonly #renames: boolean
  /** Undefined where the client is the caller's. */
  readonly #pool: WayBack | undefined
  #physical: PhysicalConnection | undefined
  /** The first message. */
  #first: SentQuery | undefined
  #closed = false
  #returned = false

  constructor(client: PostgresJsClient, renames: boolean, pool: WayBack | undefined) {
    this.client = client
    this.#renames = renames
    this.#pool = pool
  }

  script(text: string): Promise<StatementResult[]> {
    const capture = this.#isUnknown
    if (capture && text.length > MAX_TELLING_CHARACTERS) return this.#captureFirst(() => this.script(text))
    return this.#ask(text, [], capture ? { onexecute: this.#capture } : undefined, (result) => {
      const results = isSeveral(result) ? result : [result]
      this.#learn(results[0]?.state?.pid)
      const answers = results.map(toStatementResult)
      return this.#renames ? answers.map(inOurNames) : answers
    })
  }

  query<Row>(text: string, values: readonly unknown[] = []): Promise<StatementResult<Row>> {
    if (this.#isUnknown) return this.#captureFirst(() => this.query<Row>(text, values))
    // Prepared as postgres.js prepares its own, unless the caller turned that off: unprepared, a statement with values takes two
    // round trips.
    const copy = [...values]
    const options = copy.length === 0 ? PREPARED_WITHOUT_VALUES : PREPARED
    return this.#ask(text, copy, options, (result) => {
      return toStatementResult(result as PostgresJsResult) as StatementResult<Row>
    })
  }

  /** One after the other: sent together, COMMIT would go alone where postgres.js cannot write a value of the statement before. */
  commit(closing: readonly Statement[]): Promise<Commit> {
    if (closing.length > 0) return this.#commitAfter(closing)
    return this.#ask(COMMIT, [], undefined, (result) => ({
      command: (result as PostgresJsResult).command ?? '',
    }))
  }

  async #commitAfter(closing: readonly Statement[]): Promise<Commit> {
    try {
      for (const { text, values } of closing) await this.query(text, values)
    } catch (failure) {
      return { command: '', failure }
    }
    return this.commit([])
  }

  #ask<T>(
    text: string,
    values: unknown[],
    options: object | undefined,
    read: (result: PostgresJsResult | PostgresJsResult[]) => T,
  ): Promise<T> {
    if (this.#returned && this.#pool !== undefined) return Promise.reject(alreadyReturned())
    if (this.lost) return Promise.reject(alreadyLost())
    const answer = this.client.unsafe(text, values as never[], options) as Promise<unknown>
    if (this.#isUnknown) this.#first = answer as SentQuery
    return answer.then(
      (result) => {
        if (!this.#isUnknown) return read(result as PostgresJsResult | PostgresJsResult[])
        // It was asked to tell which connection it took, and did not.
        this.destroy()
        throw unsupported()
      },
      (error: unknown) => {
        // The query is rejected a moment before the close hook runs.
        if (endsSession(error)) this.lost = true
        throw error
      },
    )
  }

  /** Whether it is ours and we do not know yet which physical connection it is. */
  get #isUnknown(): boolean {
    return this.#pool !== undefined && this.#physical === undefined
  }

  #learn(pid: number | undefined): void {
    if (pid === undefined || this.protocolPid !== undefined) return
    this.protocolPid = pid
    this.memory = this.#pool?.memories.of(pid)
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
    if (destroy) this.lost = true
    // A closed connection has already gone back to postgres.js, perhaps to another user: releasing it would give it away twice.
    if (this.#closed || this.#pool === undefined) return
    if (destroy && this.#physical) {
      // Else a `sql.end()` before the socket is closed would wait for somebody to release it.
      this.#physical.reserved = null
      // Its place is free when it has closed: on a dead network that takes until TCP gives up.
      return this.#physical.terminate()
    }
    if (this.#physical) this.#physical.onclose = null
    this.#pool.release()
    this.#pool.leave()
  }

  /**
   * postgres.js reconnects a lost connection in place and may hand it to another caller while we still hold the reserved
   * handle; a query through ours would then run in a stranger's transaction. Its close hook is the only warning.
   */
  readonly #capture = (physical: PhysicalConnection): boolean => {
    this.#physical = physical
    this.#learn(this.#first?.state?.pid ?? undefined)
    this.#first = undefined
    physical.onclose = () => {
      this.lost = true
      this.#closed = true
      this.#pool?.leave()
    }
    return true
  }

  /** Without the close hook a lost connection would be released to two users. */
  async #captureFirst<T>(then: () => Promise<T>): Promise<T> {
    await this.script(PROBE)
    return then()
  }
}

function isSeveral(result: PostgresJsResult | PostgresJsResult[]): result is PostgresJsResult[] {
  return Array.isArray(result[0])
}
