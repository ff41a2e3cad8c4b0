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
import { isEndedEarly, refusalByCheck } from './commitCheck.ts'
import { COMMIT, commitAfter, PROBE } from './postgres.sql.ts'
import type { Pin } from './postgresJsPin.ts'
import {
  type PhysicalConnection,
  type PostgresJs,
  type PostgresJsClient,
  PostgresJsPool,
  type PostgresJsReserved,
  unsupported,
} from './postgresJsPool.ts'
import { neverSent, undefinedAmong } from './postgresJsValues.ts'
import { postgresJsVirtualClient } from './postgresJsVirtualClient.ts'
import { endsSession } from './sqlstate.ts'
import type { VirtualSession } from './virtualClient.ts'

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
  const route = routeOf(sql)
  return {
    name: 'postgres',
    poolSize: pool.size,
    hasIdle: () => pool.hasIdle(),
    hasRoom: () => pool.hasRoom(),
    isExhausted: () => pool.isExhausted(),
    connect() {
      return pool.take(
        (client, pin) => new PostgresJsConnection(client, sql, renames, { pool, memories, route, client, pin }),
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
      return new PostgresJsConnection(client as PostgresJsClient, sql, renames, undefined)
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

/** Several hosts are tried one after the other until one answers. */
function routeOf({ options: { host, port, database } }: PostgresJs): string | undefined {
  if (!Array.isArray(host) || !Array.isArray(port)) return undefined
  return `${host.map((each, place) => `${each}:${port[place]}`).join(',')}/${String(database)}`
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

/** Where a connection comes from. */
interface Origin {
  readonly pool: PostgresJsPool
  readonly memories: Memories
  readonly route: string | undefined
  readonly client: PostgresJsReserved
  readonly pin: Pin | undefined
}

class PostgresJsConnection implements Connection {
  lost = false
  onLost: Connection['onLost']
  readonly client: PostgresJsClient
  /** The pool that it is of. */
  readonly #sql: PostgresJs
  readonly #renames: boolean
  /** Undefined where the client is the caller's. */
  readonly #origin: Origin | undefined
  #physical: PhysicalConnection | undefined
  /** The first message. */
  #first: SentQuery | undefined
  #pid: number | undefined
  #memory: ConnectionMemory | undefined
  #closed = false
  #returned = false

  constructor(client: PostgresJsClient, sql: PostgresJs, renames: boolean, origin: Origin | undefined) {
    this.client = client
    this.#sql = sql
    this.#renames = renames
    this.#origin = origin
    if (origin?.pin !== undefined) this.#capture(origin.pin.physical)
  }

  get protocolPid(): number | undefined {
    // Known once the first message was sent, which may be before its answer comes.
    if (this.#pid === undefined) this.#learn(this.#first?.state?.pid ?? undefined)
    return this.#pid
  }

  get memory(): ConnectionMemory | undefined {
    return this.protocolPid === undefined ? undefined : this.#memory
  }

  get route(): string | undefined {
    return this.#origin?.route
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
    const refusal = undefinedAmong(this.#sql, values)
    if (refusal !== undefined) return Promise.reject(refusal)
    const copy = [...values]
    const options = copy.length === 0 ? PREPARED_WITHOUT_VALUES : PREPARED
    return this.#ask(text, copy, options, (result) => {
      return toStatementResult(result as PostgresJsResult) as StatementResult<Row>
    })
  }

  /** One after the other: sent together, COMMIT would go alone where postgres.js cannot write a value of the statement before. */
  commit(closing: readonly Statement[], check?: string): Promise<Commit> {
    if (closing.length > 0) return this.#commitAfter(closing, check)
    if (check !== undefined) return this.#commitChecked(check)
    return this.#ask(COMMIT, [], undefined, (result) => ({
      command: (result as PostgresJsResult).command ?? '',
    }))
  }

  async #commitChecked(check: string): Promise<Commit> {
    try {
      return { command: (await this.script(commitAfter(check))).at(-1)?.command ?? '' }
    } catch (error) {
      const refusal = refusalByCheck(error)
      if (refusal === undefined) throw error
      return refusal
    }
  }

  /** The check goes first: nothing of what follows may be run outside of the transaction. None of it can end that. */
  async #commitAfter(closing: readonly Statement[], check: string | undefined): Promise<Commit> {
    try {
      if (check !== undefined) await this.script(check)
      for (const { text, values } of closing) await this.query(text, values)
    } catch (failure) {
      return { command: '', failure, endedEarly: isEndedEarly(failure) }
    }
    return this.commit([])
  }

  virtualClient(session: VirtualSession): unknown {
    return postgresJsVirtualClient(this.client, this.#sql, session)
  }

  neverSent(error: unknown, values: readonly unknown[]): boolean {
    return neverSent(this.#sql, error, values)
  }

  #ask<T>(
    text: string,
    values: unknown[],
    options: object | undefined,
    read: (result: PostgresJsResult | PostgresJsResult[]) => T,
  ): Promise<T> {
    if (this.#returned && this.#origin !== undefined) return Promise.reject(alreadyReturned())
    if (this.lost) return Promise.reject(alreadyLost())
    const answer = this.client.unsafe(text, values as never[], options) as Promise<unknown>
    if (this.#pid === undefined) this.#first = answer as SentQuery
    return answer.then(
      (result) => {
        if (!this.#isUnknown) return read(result as PostgresJsResult | PostgresJsResult[])
        // It was asked to tell which connection it took, and did not.
        this.destroy()
        throw unsupported()
      },
      (error: unknown) => {
        // The query is rejected a moment before the close hook runs.
        if (endsSession(error)) this.#seeEnd(error)
        throw error
      },
    )
  }

  /** Whether it is ours and we do not know yet which physical connection it is. */
  get #isUnknown(): boolean {
    return this.#origin !== undefined && this.#physical === undefined
  }

  #learn(pid: number | undefined): void {
    if (pid === undefined || this.#pid !== undefined) return
    this.#pid = pid
    this.#first = undefined
    this.#memory = this.#origin?.memories.of(pid)
  }

  #seeEnd(cause?: unknown): void {
    this.lost = true
    const { onLost } = this
    this.onLost = undefined
    onLost?.(cause)
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
    if (destroy) this.#seeEnd()
    // A closed connection has already gone back to postgres.js, perhaps to another user: releasing it would give it away twice.
    if (this.#closed || this.#origin === undefined) return
    if (destroy && this.#physical) {
      // Else a `sql.end()` before the socket is closed would wait for somebody to release it.
      this.#physical.reserved = null
      // Its place is free when it has closed: on a dead network that takes until TCP gives up.
      return this.#physical.terminate()
    }
    if (this.#physical) this.#physical.onclose = null
    this.#origin.pool.release(this.#origin.client, this.#origin.pin)
  }

  /**
   * postgres.js reconnects a lost connection in place and may hand it to another caller while we still hold the reserved
   * handle; a query through ours would then run in a stranger's transaction. Its close hook is the only warning.
   */
  readonly #capture = (physical: PhysicalConnection): boolean => {
    this.#physical = physical
    const pool = this.#origin?.pool
    pool?.know(physical)
    physical.onclose = () => {
      this.#closed = true
      pool?.forget(physical)
      pool?.leave()
      this.#seeEnd()
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
