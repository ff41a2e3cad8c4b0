import { DriverUnsupported, PoolClosed } from '../errors.ts'
import { PROBE } from './postgres.sql.ts'
import { codeOf, endsSession, isSqlState } from './sqlstate.ts'

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
  readonly options: { readonly max?: number; readonly transform?: unknown }
  /** On a connection of its own, which it restores by itself. */
  listen(
    channel: string,
    heard: (payload: string) => void,
    listening?: () => void,
  ): PromiseLike<{ unlisten(): Promise<void> }>
}

/** What postgres.js hands to `onexecute`, the hook by which its own `begin()` learns which connection it got. */
export interface PhysicalConnection {
  onclose?: ((error: unknown) => void) | null
  reserved?: unknown
  /** The list of all connections that are in the same state. */
  readonly queue: { readonly length: number }
  /** Started when, and only when, the connection has gone to the list of the idle ones. */
  readonly idleTimer: { start(): void }
  terminate(): void
}

const POSTGRES_JS_DEFAULT_POOL_SIZE = 10

/** The codes of postgres.js and Node for the end of a connection that was open. */
const CLOSED_CODES = new Set(['CONNECTION_CLOSED', 'CONNECTION_DESTROYED', 'ECONNRESET', 'EPIPE'])

/** The server or the pooler cannot take new connections now. */
const NOT_NOW = '57P03'

const pools = new WeakMap<PostgresJs, PostgresJsPool>()

/**
 * Reserves connections of postgres.js. Its `reserve()` can be relied on only while a connection is open and idle:
 * - one that it must open itself never comes where `fetch_types` is false (porsager/postgres#751);
 * - where opening fails, its caller's place in the queue remains, and the next connection that comes free is lost to it;
 * - a connection that closes takes the first caller in the queue with it;
 * - what the server said when it closed a connection is told to the caller for whom it is opened again;
 * - on an ended pool it opens a connection all the same, or never settles.
 *
 * So it is called only when the list of idle connections has one. Until then a query goes through the pool: it opens a
 * connection or waits for one like every other query, and is told of everything that can go wrong. Callers beyond the pool's
 * size wait here for their turn, and cost no query.
 */
export class PostgresJsPool {
  readonly size: number
  readonly #sql: PostgresJs
  #idle: PhysicalConnection['queue'] | undefined
  #unsupported = false
  #free: number
  /** Callers whose turn it is and that have no connection yet. */
  #opening = 0
  readonly #waiting: (() => void)[] = []

  private constructor(sql: PostgresJs) {
    this.#sql = sql
    this.size = sql.options.max ?? POSTGRES_JS_DEFAULT_POOL_SIZE
    this.#free = this.size
  }

  /** Two Locksteps on one `sql` share its connections. */
  static of(sql: PostgresJs): PostgresJsPool {
    let pool = pools.get(sql)
    if (pool === undefined) pools.set(sql, (pool = new PostgresJsPool(sql)))
    return pool
  }

  /** A connection for one user, who calls `leave()` once it is released, terminated or seen to be lost. */
  reserve(): Promise<PostgresJsReserved> {
    if (!this.hasIdle()) return this.#reserveLater()
    this.#free--
    return this.#sql.reserve()
  }

  async #reserveLater(): Promise<PostgresJsReserved> {
    if (this.#free > 0) this.#free--
    else await new Promise<void>((resolve) => this.#waiting.push(resolve))
    this.#opening++
    try {
      // Every connection of the pool may have last words of its own to tell.
      for (let tries = 0; this.#idle === undefined || this.#idle.length === 0; tries++) await this.#openOne(tries)
      // Takes the idle one before anybody else can.
      return await this.#sql.reserve()
    } catch (error) {
      this.leave()
      throw error
    } finally {
      this.#opening--
    }
  }

  /** Whether a connection can be had at once. */
  hasIdle(): boolean {
    return this.#free > 0 && this.#idle !== undefined && this.#idle.length > 0
  }

  /** Whether nobody waits here, and fewer connections are reserved than there may be. Of plain queries nothing is known. */
  hasRoom(): boolean {
    return this.#free > 0
  }

  /** Whether all connections are reserved. Of those that plain queries use nothing is known. */
  isExhausted(): boolean {
    return this.#free === 0 && this.#opening === 0
  }

  leave(): void {
    const next = this.#waiting.shift()
    if (next === undefined) this.#free++
    else next()
  }

  async #openOne(tries: number): Promise<void> {
    try {
      await this.#sql.unsafe(PROBE, [], { simple: true, onexecute: this.#learn })
    } catch (error) {
      const code = codeOf(error) ?? ''
      if (code === 'CONNECTION_ENDED') throw poolClosed(error)
      if (!isOfAnother(error, code) || tries > this.size) throw error
    }
    if (this.#unsupported) throw unsupported()
  }

  /** Finds the list of idle connections: the one that a connection is in when its idle timer starts. */
  readonly #learn = (physical: PhysicalConnection): boolean => {
    if (this.#idle !== undefined) return true
    const timer = physical.idleTimer as PhysicalConnection['idleTimer'] | undefined
    if (typeof timer?.start !== 'function') return (this.#unsupported = true)
    const start = timer.start.bind(timer)
    timer.start = () => {
      this.#idle = physical.queue
      timer.start = start
      start()
    }
    return true
  }
}

/** Whether it was met by a connection that was already there: the next one may be well. */
function isOfAnother(error: unknown, code: string): boolean {
  return CLOSED_CODES.has(code) || (isSqlState(error) && endsSession(error) && code !== NOT_NOW)
}

/** The error for a postgres.js whose inside is another than the one that was tried. */
export function unsupported(): DriverUnsupported {
  return new DriverUnsupported('This version of postgres.js does not tell which connection ran a query.', {
    advice: 'Use postgres 3.4, or pg.',
  })
}

function poolClosed(cause: unknown): PoolClosed {
  return new PoolClosed('The postgres.js pool was ended.', {
    advice: 'Create a new one, or call lockstep.close() before sql.end().',
    cause,
  })
}
