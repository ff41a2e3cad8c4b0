import { PoolClosedError } from '../errors.ts'
import {
  alreadyLost,
  alreadyReturned,
  type Commit,
  type Connection,
  type ConnectionMemory,
  type Driver,
  type Notice,
  type OwnStatement,
  type OwnValue,
  type QueryListener,
  type Statement,
  type StatementResult,
  type TextRow,
} from './connection.ts'
import { isEndedEarly } from './commitCheck.ts'
import { textOf } from './ownValues.ts'
import type { PgCallback, PgClient, PgNotification, PgPool, PgPoolClient, PgQueryConfig } from './pgClient.ts'
import { PgPoolWatch } from './pgConnectFailure.ts'
import { askInOneMessage, commitInOneMessage, valueMapperOf } from './pgMessage.ts'
import { cutOff, PgPoolClients } from './pgPoolClients.ts'
import { pgVirtualClient } from './pgVirtualClient.ts'
import { COMMIT, listen, unlisten } from './postgres.sql.ts'
import { SilenceWatch } from './silenceWatch.ts'
import { endsSession } from './sqlstate.ts'
import type { VirtualSession } from './virtualClient.ts'
import { connectWithin } from './withConnection.ts'

/** How long LISTEN and UNLISTEN may take. */
const LISTEN_MS = 3000

interface PgResult {
  readonly rows?: Record<string, unknown>[]
  readonly rowCount?: number | null
  readonly command?: string
}

/** For our own statements: every value is text. Where the pool asks for binary values, the bytes of a text are that text. */
const AS_TEXT = { getTypeParser: () => String }

function toTextResults(result: unknown): StatementResult<TextRow>[] {
  return Array.isArray(result) ? result.map(toTextResult) : [toTextResult(result)]
}

function toTextResult(result: unknown): StatementResult<TextRow> {
  return toStatementResult(result) as StatementResult<TextRow>
}

function toStatementResult(given: unknown): StatementResult {
  const result = given as PgResult
  return { rows: result.rows ?? [], rowCount: result.rowCount ?? 0, command: result.command ?? '' }
}

/** The seam on `pg`. */
export function pgDriver(pool: PgPool, silenceMs: number): Driver {
  const watch = PgPoolWatch.of(pool)
  const memories = new WeakMap<PgClient, ConnectionMemory>()
  const keeping = { forgotten: false }

  function memoryOf(client: PgClient): ConnectionMemory {
    let memory = memories.get(client)
    if (memory === undefined) memories.set(client, (memory = { keeping }))
    return memory
  }

  const poolSize = watch.size
  const driver: Driver = {
    name: 'pg',
    poolSize,
    get connects() {
      const limitMs = pool.options?.connectionTimeoutMillis || Infinity
      const option = `connectionTimeoutMillis: ${silenceMs}`
      return { option, limitMs, silenceMs, watched: clients.knowsOpening }
    },
    // Those who asked in this very tick are still waiting for what looks idle.
    hasIdle: () => (pool.idleCount ?? 0) > (pool.waitingCount ?? 0),
    isExhausted: () => watch.isExhausted(),
    hasCapacity: () => (pool.totalCount ?? poolSize) < poolSize && (pool.waitingCount ?? 0) === 0,
    connect() {
      // A pool that has one at hand gives it at once.
      return driver.hasIdle() ? connect() : clients.recovery.whileWaiting(connect())
    },
    async listen(channel, heard, lost) {
      const silence = new SilenceWatch(LISTEN_MS)
      const connection = await connectWithin(driver, LISTEN_MS)
      const client = connection.client as PgClient
      const onNotification = (message: PgNotification): void => {
        if (message.channel === channel) heard(message.payload)
      }
      const stop = (): void => {
        client.removeListener('notification', onNotification)
        client.removeListener('end', onEnd)
      }
      const onEnd = (): void => {
        stop()
        connection.destroy()
        lost()
      }
      client.on('notification', onNotification)
      client.on('end', onEnd)
      try {
        await silence.script(connection, listen(channel))
      } catch (error) {
        stop()
        connection.destroy()
        throw error
      }
      return async () => {
        stop()
        try {
          await silence.script(connection, unlisten(channel))
          connection.release()
        } catch {
          connection.destroy()
        }
      }
    },
    wrap(client) {
      return new PgConnection(client as PgClient, {}, undefined)
    },
  }
  const beside = (client: PgClient, close: ReturnToPool): Connection => new PgConnection(client, {}, close)
  const clients = PgPoolClients.of(pool, driver, beside, silenceMs)

  function connect(): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const take = (): void => {
        if (pool.ending === true || pool.ended === true) return reject(poolClosed())
        const begun = watch.begin()
        pool.connect((error, client) => {
          if (client === undefined) return watch.failure(error, begun, reject)
          if (isClean(client)) return resolve(ours(client))
          // Other code released it with a transaction open: our COMMIT would commit theirs.
          client.release(true)
          take()
        })
      }
      take()
    })
  }

  function ours(client: PgPoolClient): Connection {
    clients.take(client)
    return new PgConnection(client, memoryOf(client), (destroy, silent) => {
      clients.returnToPool(client)
      client.release(destroy)
      if (!destroy) return
      // Where nothing is on its way, pg says goodbye and waits for the server to close; who waits for the place waits as well.
      setTimeout(() => cutOff(client), CLOSE_MS).unref()
      if (silent) clients.recovery.noteSilence()
    })
  }

  return driver
}

/** A server that is there closes its side much sooner. */
const CLOSE_MS = 100

/** Whether the client is in no transaction, if this version of pg reports it. */
function isClean(client: PgClient): boolean {
  const status = client.getTransactionStatus?.()
  return status === undefined || status === null || status === 'I'
}

function poolClosed(): PoolClosedError {
  return new PoolClosedError('The pg pool was ended.', {
    advice: 'Create a new pool, or call lockstep.close() before pool.end().',
  })
}

/** How a client goes back. `silent`: it is destroyed because it did not answer. */
type ReturnToPool = (destroy: boolean, silent: boolean) => void

class PgConnection implements Connection {
  lost = false
  onLost: Connection['onLost']
  /** The server's last words, where it had any. */
  #lastServerError: Error | undefined
  readonly client: PgClient
  readonly memory: ConnectionMemory
  /** Undefined where the client is the caller's. */
  readonly #returnToPool: ReturnToPool | undefined
  #returned = false
  /** Without a listener a checked-out client's error event would end the process. */
  readonly #onLost = (error?: Error): void => {
    this.lost = true
    this.#lastServerError ??= error
    this.#reportLost()
  }

  constructor(client: PgClient, memory: ConnectionMemory, returnToPool: ReturnToPool | undefined) {
    this.client = client
    this.memory = memory
    this.#returnToPool = returnToPool
    client.on('error', this.#onLost)
    client.on('end', this.#onLost)
  }

  #reportLost(): void {
    const { onLost } = this
    this.onLost = undefined
    onLost?.(this.#lastServerError)
  }

  get protocolPid(): number | undefined {
    return this.client.processID ?? undefined
  }

  get route(): string | undefined {
    const { host, port, database } = this.client
    return typeof host === 'string' ? `${host}:${port}/${database}` : undefined
  }

  script(text: string): Promise<StatementResult<TextRow>[]> {
    return this.#ask((callback) => this.client.query({ text, types: AS_TEXT }, callback), toTextResults)
  }

  read(text: string, values: readonly OwnValue[] = []): Promise<StatementResult<TextRow>> {
    const config: PgQueryConfig = { text, values: this.ownValues(values), queryMode: 'extended', types: AS_TEXT }
    return this.#ask((callback) => this.client.query(config, callback), toTextResult)
  }

  ownValues(values: readonly OwnValue[]): unknown[] {
    return values.map(textOf)
  }

  query<Row>(text: string, values: readonly unknown[] = [], listener?: QueryListener): Promise<StatementResult<Row>> {
    const read = toStatementResult as (result: unknown) => StatementResult<Row>
    if (values.length > 0)
      return this.#ask((callback) => this.client.query(text, [...values], callback), read, listener)
    // Without values pg would take the simple protocol, in which one text can be several statements.
    return this.#ask((callback) => this.client.query({ text, queryMode: 'extended' }, callback), read, listener)
  }

  ask(
    statements: readonly OwnStatement[],
    columns: readonly string[],
  ): Promise<StatementResult<TextRow>[]> | undefined {
    const question = askInOneMessage(this.client, statements, columns, this.memory)
    if (question === undefined) return undefined
    return this.#ask(
      (callback) => this.client.query(question, callback),
      (answer) => answer as StatementResult<TextRow>[],
    )
  }

  commit(given: readonly Statement[], check?: string): Promise<Commit> {
    // The server's own word, where this version of pg passes it on. COMMIT AND CHAIN leaves a transaction open: for that there is the check.
    if (this.client.getTransactionStatus?.() === 'I') return Promise.resolve({ command: '', endedEarly: true })
    const closing = check === undefined ? given : [{ text: check, values: [] }, ...given]
    const together = closing.length > 0 ? commitInOneMessage(this.client, closing, this.memory) : undefined
    if (together !== undefined)
      return this.#ask(
        (callback) => this.client.query(together, callback),
        (answer) => answer as Commit,
      )
    if (closing.length > 0) return this.#commitAfter(closing)
    return this.#ask((callback) => this.client.query(COMMIT, callback), toStatementResult)
  }

  async #commitAfter(closing: readonly Statement[]): Promise<Commit> {
    try {
      for (const { text, values, own } of closing) {
        await (own === true ? this.read(text, values as readonly OwnValue[]) : this.query(text, values))
      }
    } catch (failure) {
      return { command: '', failure, endedEarly: isEndedEarly(failure) }
    }
    return this.commit([])
  }

  hearing(heard: (notice: Notice) => void): () => void {
    this.client.on('notice', heard)
    return () => void this.client.removeListener('notice', heard)
  }

  virtualClient(session: VirtualSession): unknown {
    return pgVirtualClient(this.client, session, {
      cannotWrite: (values) => this.#cannotWrite(values),
      failed: (error) => this.#noteFailure(error as Error),
    })
  }

  /** By mapping them again: pg has stopped there, too. */
  neverSent(_error: unknown, values: readonly unknown[]): boolean {
    return this.#cannotWrite(values)
  }

  #cannotWrite(values: readonly unknown[]): boolean {
    const mapper = valueMapperOf(this.client)
    if (mapper === undefined) return false
    try {
      for (const value of values) mapper(value)
      return false
    } catch {
      return true
    }
  }

  #ask<T>(send: (callback: PgCallback) => unknown, read: (result: unknown) => T, listener?: QueryListener): Promise<T> {
    return new Promise((resolve, fail) => {
      const reject = (error: Error): void => {
        if (listener === undefined) return fail(error)
        // Not at once: the event that the connection has ended may come in this very tick.
        queueMicrotask(() => {
          const reported = listener.failed(error) as Error
          fail(reported)
        })
      }
      if (this.#returned && this.#returnToPool !== undefined) return reject(alreadyReturned())
      if (this.lost) return reject(alreadyLost(this.#lastServerError))
      try {
        send((error, result) => {
          if (error === null || error === undefined) {
            listener?.succeeded()
            return resolve(read(result))
          }
          this.#noteFailure(error)
          reject(error)
        })
      } catch (error) {
        reject(error as Error)
      }
    })
  }

  /** The query is rejected a moment before the end event. */
  #noteFailure(error: Error): void {
    if (endsSession(error)) this.#onLost(error)
  }

  release(): void {
    this.#return(this.lost)
  }

  destroy(silent = false): void {
    this.#return(true, silent)
  }

  #return(destroy: boolean, silent = false): void {
    if (this.#returned) return
    this.#returned = true
    if (destroy) this.lost = true
    if (destroy) this.#reportLost()
    this.client.removeListener('end', this.#onLost)
    // The pool attaches its own error listener inside release: ours goes only after that, so that no moment is without one.
    this.#returnToPool?.(destroy, silent)
    this.client.removeListener('error', this.#onLost)
  }
}
