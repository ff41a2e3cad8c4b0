import type { LockstepError } from '../errors.ts'
import {
  alreadyLost,
  alreadyReturned,
  type Commit,
  type Connection,
  type ConnectionMemory,
  type KeptStatement,
  type OwnStatement,
  type OwnValue,
  type QueryListener,
  type Statement,
  type StatementResult,
  type TextRow,
} from './connection.ts'
import { isEndedEarly, refusalByCheck } from './commitCheck.ts'
import { canKeep, keepStatement, NO_SUCH_STATEMENT, noteForgotten, StatementForgottenError } from './keptStatements.ts'
import { textOf } from './ownValues.ts'
import { COMMIT, commitAfter, execute, prepare, PROBE } from './postgres.sql.ts'
import type { Taken } from './postgresJsConnectionRequest.ts'
import {
  type Backend,
  type PhysicalConnection,
  type PostgresJs,
  type PostgresJsClient,
  type PostgresJsQuery,
  unsupported,
} from './postgresJsClient.ts'
import type { PostgresJsPool } from './postgresJsPool.ts'
import { closeConnection } from './postgresJsSocket.ts'
import {
  isSeveral,
  type PostgresJsResult,
  toStatementResult,
  toTextOfUnknownPool,
  toTextResult,
} from './postgresJsResults.ts'
import type { TransformBypass } from './postgresJsTransforms.ts'
import { neverSent, undefinedAmong } from './postgresJsValues.ts'
import { postgresJsVirtualClient } from './postgresJsVirtualClient.ts'
import { codeOf, endsSession } from './sqlstate.ts'
import type { VirtualSession } from './virtualClient.ts'

/**
 * Of a message that fills the socket's buffer postgres.js does not tell which connection it went to. Node's smallest has 16 KiB,
 * and a character up to 4 bytes.
 */
const MAX_MESSAGE_CHARACTERS = 4000

/** The type of a parameter that the statement decides on. Of this one no owner has a serializer. */
const UNKNOWN_TYPE = 705

/** Without values and options postgres.js sends a plain message. Every option costs: it copies them the slow way, one by one. */
const PREPARED = { prepare: true }
const PREPARED_WITHOUT_VALUES = { simple: false, prepare: true }

/** How the rows of our own statements are read. */
export interface Reading {
  /** Whether the client is of the pool that Lockstep was made with. */
  readonly isKnown: boolean
  readonly bypass: TransformBypass | undefined
}

/** More connections than a pool ever has; reconnected ones have new numbers. */
const MAX_MEMORIES = 1000

/**
 * What is known of connections, by the process id that the server gave them: postgres.js reconnects in place, so the same object
 * can be another connection the next time. A process id that occurs again after a crash brings back the memory of another server epoch;
 * that costs a certain answer about a lost COMMIT, never a right one.
 */
export class Memories {
  readonly #byPid = new Map<number, ConnectionMemory>()
  readonly #keeping = { forgotten: false }

  of(pid: number): ConnectionMemory {
    let memory = this.#byPid.get(pid)
    if (memory === undefined) {
      if (this.#byPid.size >= MAX_MEMORIES) this.#byPid.clear()
      this.#byPid.set(pid, (memory = { keeping: this.#keeping }))
    }
    return memory
  }
}

/** A query of postgres.js, which knows the server process from when it was sent. */
interface SentQuery {
  readonly state?: Backend | null
}

/** Where a connection comes from. */
export interface Origin {
  readonly pool: PostgresJsPool
  readonly memories: Memories
  readonly route: string | undefined
  readonly taken: Taken
  /** To be called when it did not answer. */
  noteSilence?(): void
}

/** A connection of postgres.js in our hands, or a client of the caller's. */
export class PostgresJsConnection implements Connection {
  lost = false
  onLost: Connection['onLost']
  readonly client: PostgresJsClient
  /** The pool that it is of. */
  readonly #sql: PostgresJs
  readonly #reading: Reading
  /** Undefined where the client is the caller's. */
  readonly #origin: Origin | undefined
  #physical: PhysicalConnection | undefined
  /** The first message. */
  #first: SentQuery | undefined
  #pid: number | undefined
  #memory: ConnectionMemory | undefined
  #closed = false
  #returned = false

  constructor(client: PostgresJsClient, sql: PostgresJs, reading: Reading, origin: Origin | undefined) {
    this.client = client
    this.#sql = sql
    this.#reading = reading
    this.#origin = origin
    if (origin?.taken.physical !== undefined) this.#capture(origin.taken.physical)
  }

  get protocolPid(): number | undefined {
    // Known once the first message was sent, which may be before its answer comes.
    if (this.#pid === undefined) this.#learn(this.#first?.state)
    return this.#pid
  }

  get memory(): ConnectionMemory | undefined {
    return this.protocolPid === undefined ? undefined : this.#memory
  }

  get route(): string | undefined {
    return this.#origin?.route
  }

  script(text: string): Promise<StatementResult<TextRow>[]> {
    const capture = this.#isUnknown
    if (capture && text.length > MAX_MESSAGE_CHARACTERS) return this.#captureFirst(() => this.script(text))
    const options = capture ? { onexecute: this.#capture } : undefined
    return this.#askOwn(text, [], options, (result) => this.#toTextResults(result))
  }

  /**
   * As text that executes what the server process keeps: postgres.js sends several statements together only in the simple protocol. It saves
   * the server the analysis and planning, 19 µs of 67 for one lock and 33 of 99 for a hand-over.
   */
  ask(statements: readonly OwnStatement[]): Promise<StatementResult<TextRow>[]> | undefined {
    const { memory } = this
    if (this.#isUnknown || !canKeep(memory)) return undefined
    let script = ''
    let prepared: KeptStatement[] | undefined
    for (const { text, values } of statements) {
      if (values.length === 0) {
        script += `${text};`
        continue
      }
      const kept = keepStatement(memory, text)
      if (kept === undefined) return undefined
      if (!kept.there) {
        script += prepare(kept.name, text)
        ;(prepared ??= []).push(kept)
      }
      script += execute(kept.name, values)
    }
    const listener: QueryListener = {
      succeeded: () => prepared?.forEach((kept) => (kept.there = true)),
      failed: (error) => {
        if (codeOf(error) !== NO_SUCH_STATEMENT) return error
        noteForgotten(memory)
        return new StatementForgottenError('The server process does not keep a statement any more.', { cause: error })
      },
    }
    return this.#askOwn(script, [], undefined, (result) => this.#toTextResults(result), listener)
  }

  #toTextResults(result: PostgresJsResult | PostgresJsResult[]): StatementResult<TextRow>[] {
    const results = isSeveral(result) ? result : [result]
    this.#learn(results[0]?.state)
    return results.map(this.#reading.isKnown ? toTextResult : toTextOfUnknownPool)
  }

  read(text: string, values: readonly OwnValue[] = []): Promise<StatementResult<TextRow>> {
    if (this.#isUnknown) return this.#captureFirst(() => this.read(text, values))
    const parameters = this.ownValues(values)
    const options = parameters.length === 0 ? PREPARED_WITHOUT_VALUES : PREPARED
    return this.#askOwn(text, parameters, options, (result) => {
      return (this.#reading.isKnown ? toTextResult : toTextOfUnknownPool)(result as PostgresJsResult)
    })
  }

  ownValues(values: readonly OwnValue[]): unknown[] {
    return values.map((value) => this.client.typed(textOf(value) as never, UNKNOWN_TYPE))
  }

  query<Row>(text: string, values: readonly unknown[] = [], listener?: QueryListener): Promise<StatementResult<Row>> {
    if (this.#isUnknown) return this.#captureFirst(() => this.query<Row>(text, values, listener), listener)
    // Prepared as postgres.js prepares its own, unless the caller turned that off: unprepared, a statement with values takes two
    // round trips.
    const refusal = undefinedAmong(this.#sql, values)
    if (refusal !== undefined) return refused(refusal, listener)
    const copy = [...values]
    const options = copy.length === 0 ? PREPARED_WITHOUT_VALUES : PREPARED
    return this.#ask(
      text,
      copy,
      options,
      (result) => {
        return toStatementResult(result as PostgresJsResult) as StatementResult<Row>
      },
      listener,
    )
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
      for (const { text, values, own } of closing) {
        await (own === true ? this.read(text, values as readonly OwnValue[]) : this.query(text, values))
      }
    } catch (failure) {
      return { command: '', failure, endedEarly: isEndedEarly(failure) }
    }
    return this.commit([])
  }

  virtualClient(session: VirtualSession): unknown {
    return postgresJsVirtualClient(this.client, this.#sql, session, (error) => this.#noteFailure(error))
  }

  neverSent(error: unknown, values: readonly unknown[]): boolean {
    return neverSent(this.#sql, error, values)
  }

  #ask<T>(
    text: string,
    values: unknown[],
    options: object | undefined,
    read: (result: PostgresJsResult | PostgresJsResult[]) => T,
    listener?: QueryListener,
  ): Promise<T> {
    const refusal = this.#refusal()
    if (refusal !== undefined) return refused(refusal, listener)
    return this.#answer(this.client.unsafe(text, values as never[], options) as PostgresJsQuery, read, listener)
  }

  #askOwn<T>(
    text: string,
    values: unknown[],
    options: object | undefined,
    read: (result: PostgresJsResult | PostgresJsResult[]) => T,
    listener?: QueryListener,
  ): Promise<T> {
    const refusal = this.#refusal()
    if (refusal !== undefined) return Promise.reject(refusal)
    const query = this.client.unsafe(text, values as never[], options) as PostgresJsQuery
    this.#reading.bypass?.mark(query)
    return this.#answer(this.#reading.isKnown ? query.raw() : query, read, listener)
  }

  /** Why nothing can be sent. */
  #refusal(): LockstepError | undefined {
    if (this.#returned && this.#origin !== undefined) return alreadyReturned()
    return this.lost ? alreadyLost() : undefined
  }

  #answer<T>(
    query: PostgresJsQuery,
    read: (result: PostgresJsResult | PostgresJsResult[]) => T,
    listener?: QueryListener,
  ): Promise<T> {
    if (this.#pid === undefined) this.#first = query as unknown as SentQuery
    return query.then(
      (result) => {
        if (!this.#isUnknown) {
          listener?.succeeded()
          return read(result as PostgresJsResult | PostgresJsResult[])
        }
        // It was asked to tell which connection it took, and did not.
        this.destroy()
        throw unsupported()
      },
      (error: unknown) => {
        this.#noteFailure(error)
        throw listener === undefined ? error : listener.failed(error)
      },
    )
  }

  /** The query is rejected a moment before the close hook runs. */
  #noteFailure(error: unknown): void {
    if (endsSession(error)) this.#seeEnd(error)
  }

  /** Whether it is ours and we do not know yet which physical connection it is. */
  get #isUnknown(): boolean {
    return this.#origin !== undefined && this.#physical === undefined
  }

  #learn(backend: Backend | null | undefined): void {
    const pid = backend?.pid ?? undefined
    if (pid === undefined || this.#pid !== undefined) return
    this.#pid = pid
    this.#first = undefined
    this.#memory = this.#origin?.memories.of(pid)
    if (this.#physical !== undefined) this.#origin?.pool.connections.know(this.#physical, backend as Backend)
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

  destroy(silent = false): void {
    this.#return(true)
    if (silent) this.#origin?.noteSilence?.()
  }

  #return(destroy: boolean): void {
    if (this.#returned) return
    this.#returned = true
    if (destroy) this.#seeEnd()
    // A closed connection has already gone back to postgres.js, perhaps to another user: releasing it would give it away twice.
    if (this.#closed || this.#origin === undefined) return
    const { pool, taken } = this.#origin
    // A released connection does not end by itself: postgres.js looks whether it has to only after an answer.
    if (this.#physical && (destroy || pool.connections.isEnding(this.#physical))) {
      // Otherwise a `sql.end()` before the socket is closed would wait for its release.
      this.#physical.reserved = null
      // Its place is free when it has closed.
      return closeConnection(this.#physical)
    }
    if (this.#physical) {
      this.#physical.onclose = null
      pool.connections.returnToPool(this.#physical)
    }
    pool.release(taken)
  }

  /**
   * postgres.js reconnects a lost connection in place and may hand it to another caller while we still hold the reserved
   * handle; a query through ours would then run in a stranger's transaction. Its close hook is the only warning.
   */
  readonly #capture = (physical: PhysicalConnection): boolean => {
    this.#physical = physical
    const { pool, taken } = this.#origin as Origin
    const by = taken.pin === undefined ? 'reserve' : 'pin'
    this.#learn(pool.connections.take(physical, this.#first?.state ?? undefined, by))
    const next = physical.reserved
    physical.onclose = () => {
      this.#closed = true
      pool.connections.closed(physical)
      pool.leave()
      this.#seeEnd()
      if (next) rejectWaiting(physical, next)
    }
    return true
  }

  /** Without the close hook a lost connection would be released to two users. */
  async #captureFirst<T>(then: () => Promise<T>, listener?: QueryListener): Promise<T> {
    try {
      await this.script(PROBE)
    } catch (error) {
      throw listener === undefined ? error : listener.failed(error)
    }
    return then()
  }
}

function refused(refusal: Error, listener: QueryListener | undefined): Promise<never> {
  return Promise.reject(listener === undefined ? refusal : (listener.failed(refusal) as Error))
}

/**
 * Rejects what waits on a reserved connection for the answer to the query before. postgres.js forgets it when the connection closes, and its
 * callers would wait forever. `next` gives the next one to the connection, or, where none is left, puts the connection among the reserved ones.
 */
function rejectWaiting(physical: PhysicalConnection, next: () => void): void {
  const { queue, execute: originalExecute } = physical
  const given: PostgresJsQuery[] = []
  physical.execute = (query) => given.push(query as PostgresJsQuery)
  for (let count = -1; count < given.length; next()) count = given.length
  physical.execute = originalExecute
  for (const query of given) query.reject(alreadyLost())
  physical.queue.remove(physical)
  physical.queue = queue
  queue.push(physical)
}
