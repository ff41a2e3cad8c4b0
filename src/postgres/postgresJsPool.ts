import { PoolClosedError } from '../errors.ts'
import { connectFailure } from './connectFailure.ts'
import { ConnectionRequest, type Taken } from './postgresJsConnectionRequest.ts'
import { type PostgresJs, unsupported } from './postgresJsClient.ts'
import { PostgresJsConnections } from './postgresJsConnections.ts'
import { codeOf, endsSession, isSqlState } from './sqlstate.ts'

/** A caller that waits for its turn. */
interface Waiter {
  takeIdle(): void
  takeInTurn(): void
}

const POSTGRES_JS_DEFAULT_POOL_SIZE = 10

/** The codes of postgres.js and Node for the end of a connection that was open. */
const CLOSED_CODES = new Set(['CONNECTION_CLOSED', 'CONNECTION_DESTROYED', 'ECONNRESET', 'EPIPE'])

/** The server or the pooler cannot take new connections now. */
const NOT_NOW = '57P03'

/**
 * A query that fills the socket's buffer or the pipeline does not report its connection, and is sent again. Where none of so many did,
 * this version of postgres.js never reports it.
 */
const MAX_UNREPORTED = 100

const pools = new WeakMap<PostgresJs, PostgresJsPool>()

/**
 * Takes connections of postgres.js, as soon as a plain query or `sql.begin()` would get one.
 *
 * An idle connection is taken at once, by `sql.reserve()`. If none is idle, a query waits in the queue of the pool like any
 * other, and the connection that it is sent on is ours from then on (see Pin). It opens a connection where the pool has room, and
 * reports everything that can go wrong. `sql.reserve()` is not called then:
 * - it waits for an idle connection. While others pipeline their queries there is none;
 * - a connection that it must open itself never comes where `fetch_types` is false (porsager/postgres#751);
 * - where opening fails, its caller's place in the queue remains, and the next connection that comes free is lost to it;
 * - a connection that closes takes the first caller in the queue with it;
 * - what the server said when it closed a connection is reported to the caller for whom it is opened again;
 * - on an ended pool it opens a connection all the same, or never settles.
 *
 * Callers wait here, and cost no query, only as long as all connections are ours: then no other caller can be passed over or pass them over.
 * Released connections go back to postgres.js first, whose queue may hold others. Where one of those gets the connection, all who
 * wait here go to that queue, too.
 */
export class PostgresJsPool {
  readonly size: number
  readonly #sql: PostgresJs
  readonly connections: PostgresJsConnections
  /** Connections that are ours. */
  #lent = 0
  /** Queries that have not got their connection yet. */
  #asked = 0
  /** Whether a query has ever reported its connection. */
  #hasReported = false
  readonly #waiting: Waiter[] = []
  private constructor(sql: PostgresJs) {
    this.#sql = sql
    this.connections = new PostgresJsConnections(sql)
    this.size = sql.options.max ?? POSTGRES_JS_DEFAULT_POOL_SIZE
  }

  /** Two Locksteps on one `sql` share its connections. */
  static of(sql: PostgresJs): PostgresJsPool {
    let pool = pools.get(sql)
    if (pool === undefined) pools.set(sql, (pool = new PostgresJsPool(sql)))
    return pool
  }

  /**
   * A connection for one user, who calls `release()`; or `leave()` when it was terminated and has closed. `use` spares the quick path a
   * promise.
   */
  take<T>(use: (taken: Taken) => T): Promise<T> {
    if (this.hasIdle()) return this.#takeIdle(use)
    if (!this.#allAreOurs()) return this.#takeInTurn(use)
    return new Promise((resolve) => {
      this.#waiting.push({
        takeIdle: () => resolve(this.#takeIdle(use)),
        takeInTurn: () => resolve(this.#takeInTurn(use)),
      })
    })
  }

  get lentCount(): number {
    return this.#lent
  }

  /** Whether a connection can be had at once. */
  hasIdle(): boolean {
    const { idle } = this.connections
    return idle !== undefined && idle.length > 0
  }

  /** Whether no caller waits here, and fewer connections are ours than there may be. Of plain queries nothing is known. */
  hasCapacity(): boolean {
    return this.#lent + this.#asked < this.size
  }

  /** Whether all connections are open, or ours. Of those that only plain queries have used nothing is known. */
  isExhausted(): boolean {
    return Math.max(this.#lent, this.connections.openCount) >= this.size
  }

  release({ client, pin }: Taken): void {
    if (pin === undefined) {
      client.release()
      this.leave()
    } else {
      const { physical } = pin
      const next = physical.reserved
      physical.onclose = () => {
        this.connections.closed(physical)
        // Rejects what waits there, its own last query among it.
        next?.()
      }
      void pin.release().then(() => this.leave())
    }
  }

  /** A connection that was lent is back in the pool, or has closed. */
  leave(): void {
    this.#lent--
    this.#serve()
  }

  #takeIdle<T>(use: (taken: Taken) => T): Promise<T> {
    this.#lent++
    // Takes the idle one before another caller can.
    const { connections } = this
    connections.lastTaken = undefined
    const reserving = this.#sql.reserve()
    const physical = connections.lastTaken
    return reserving.then(
      (client) => use({ client, physical }),
      (error: unknown) => {
        this.leave()
        throw connectFailure(error)
      },
    )
  }

  /** Whether all connections that there may be are ours, or are being opened for us. */
  #allAreOurs(): boolean {
    const opening = Math.min(this.#asked, this.size - this.connections.openCount)
    return this.#lent + opening >= this.size
  }

  /** Lets those continue who need not wait here any more. */
  #serve(): void {
    while (this.#waiting.length > 0) {
      const idle = this.hasIdle()
      if (!idle && this.#allAreOurs()) return
      const next = this.#waiting.shift()
      if (idle) next?.takeIdle()
      else next?.takeInTurn()
    }
  }

  async #takeInTurn<T>(use: (taken: Taken) => T): Promise<T> {
    let failures = 0
    for (let tries = 1; ; tries++) {
      try {
        const taken = await this.#askForOne(tries === 1)
        if (taken !== undefined) return use(taken)
        if (tries >= MAX_UNREPORTED && !this.#hasReported) throw unsupported()
      } catch (error) {
        const code = codeOf(error) ?? ''
        if (code === 'CONNECTION_ENDED') throw poolClosed(error)
        // Every connection of the pool may have last words of its own to tell.
        if (!isOfAnother(error, code) || failures++ > this.size) throw connectFailure(error)
      }
    }
  }

  async #askForOne(isFirst: boolean): Promise<Taken | undefined> {
    const counters = {
      taken: () => {
        this.#asked--
        this.#lent++
      },
      left: () => this.leave(),
    }
    const request = new ConnectionRequest(this.#sql, this.connections, counters, isFirst)
    this.#asked++
    try {
      return await request.take()
    } finally {
      if (request.hasReported) this.#hasReported = true
      else this.#asked--
      this.#serve()
    }
  }
}

/** Whether it was met by a connection that was already there: the next one may be well. */
function isOfAnother(error: unknown, code: string): boolean {
  return CLOSED_CODES.has(code) || (isSqlState(error) && endsSession(error) && code !== NOT_NOW)
}

function poolClosed(cause: unknown): PoolClosedError {
  return new PoolClosedError('The postgres.js pool was ended.', {
    advice: 'Create a new one, or call lockstep.close() before sql.end().',
    cause,
  })
}
