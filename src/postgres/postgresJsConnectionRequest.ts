import { PROBE } from './postgres.sql.ts'
import type { PhysicalConnection, PostgresJs, PostgresJsQuery, PostgresJsReserved } from './postgresJsClient.ts'
import type { PostgresJsConnections } from './postgresJsConnections.ts'
import { Pin } from './postgresJsPin.ts'

/** After which time a query that was not sent is helped along; then after twice that, and so on. */
const HELP_MS = 50
const HELPERS_AT_MOST = 6

/** A connection in the hands of one user. */
export interface Taken {
  readonly client: PostgresJsReserved
  /** Which one it is. Where that is not known, the first message reports it. */
  readonly physical?: PhysicalConnection | undefined
  /** Where `sql.reserve()` could not be used. */
  readonly pin?: Pin
}

/** What a pool counts. */
export interface RequestCounters {
  /** A connection is ours from now on. */
  taken(): void
  /** It has closed, or is not ours after all. */
  left(): void
}

/**
 * Asks the pool for a connection, by a query that goes through its queue. The connection that it is sent on is ours from then on: see Pin.
 *
 * A query that has to wait in the queue of postgres.js is passed over there: a later one is sent on a connection that others are
 * waiting on, too, and the queue is only looked at when one has nothing left to do. So after a while another query of ours comes later.
 * The first one that is sent counts.
 */
export class ConnectionRequest {
  readonly #sql: PostgresJs
  readonly #connections: PostgresJsConnections
  readonly #counters: RequestCounters
  readonly #isFirst: boolean
  #physical: PhysicalConnection | undefined
  #pin: Pin | undefined
  #reserved: Promise<PostgresJsReserved> | undefined
  /** Which one that is: not always the one that the query was sent on, because another may have been idle for longer. */
  #taken: PhysicalConnection | undefined
  /** The query that was sent first. */
  #sent: PostgresJsQuery | undefined
  #over = false

  /** `isFirst`: whether it is the first try of its caller. */
  constructor(sql: PostgresJs, connections: PostgresJsConnections, counters: RequestCounters, isFirst: boolean) {
    this.#sql = sql
    this.#connections = connections
    this.#counters = counters
    this.#isFirst = isFirst
  }

  /**
   * Undefined where the query did not report its connection; and on a new connection, the first time, where others wait for it: that it
   * comes idle first, so that the list of the idle ones is known, costs nothing otherwise.
   */
  async take(): Promise<Taken | undefined> {
    try {
      await this.#answer()
      const physical = this.#physical
      if (physical === undefined) return undefined
      const reserved = this.#reserved
      const pin = this.#pin
      if (reserved === undefined) return pin && { client: pin.makeClient(), physical, pin }
      physical.onclose = null
      return { client: await reserved, physical: this.#taken }
    } catch (error) {
      await this.#giveBack()
      throw error
    } finally {
      if (this.#physical !== undefined && this.#connections.forgetIdle(this.#physical)) {
        this.#physical.onclose = null
        this.#counters.left()
      }
    }
  }

  /** The query has failed. Its connection can be alive: any statement can be canceled, and the next one may have been reserved by then. */
  async #giveBack(): Promise<void> {
    this.#pin?.discard()
    if (this.#physical === undefined || this.#reserved === undefined) return
    this.#physical.onclose = null
    const client = await this.#reserved
    client.release()
    this.#counters.left()
  }

  /** Whether the connection is known that it was sent on. */
  get hasReported(): boolean {
    return this.#physical !== undefined
  }

  /** Resolves when the query that was sent first is answered, or one that did not report its connection. */
  #answer(): Promise<void> {
    return new Promise((resolve, reject) => {
      let timer: NodeJS.Timeout | undefined
      const settle = (query: PostgresJsQuery, notify: () => void): void => {
        if (this.#over || (this.#sent !== undefined && this.#sent !== query)) return
        this.#over = true
        clearTimeout(timer)
        if (this.#physical !== undefined) this.#connections.answered(this.#physical, undefined)
        notify()
      }
      const send = (): void => {
        const onexecute = (executing: PhysicalConnection): boolean => {
          // Another one was sooner.
          if (this.#over || this.#sent !== undefined) return true
          this.#sent = query
          return this.#take(executing, query)
        }
        const query = this.#sql.unsafe(PROBE, [], { simple: true, onexecute }) as PostgresJsQuery
        query.then(
          () => settle(query, resolve),
          (error: Error) => settle(query, () => reject(error)),
        )
      }
      const helpAfter = (milliseconds: number, helpers: number): void => {
        timer = setTimeout(() => {
          if (this.#sent !== undefined || helpers === HELPERS_AT_MOST) return
          if (this.#connections.mayBeBusy) send()
          helpAfter(2 * milliseconds, helpers + 1)
        }, milliseconds).unref()
      }
      send()
      helpAfter(HELP_MS, 0)
    })
  }

  /**
   * Takes an idle connection before other code can. It must be known which one: if `sql.end()` was called meanwhile, it has to be
   * closed when it is released, or that call would never end.
   */
  #reserve(): void {
    const connections = this.#connections
    connections.lastTaken = undefined
    this.#reserved = this.#sql.reserve()
    this.#taken = connections.lastTaken
  }

  /** False: nothing else is to be sent on it. */
  #take(physical: PhysicalConnection, query: PostgresJsQuery): boolean {
    const connections = this.#connections
    const isListed = isInList(physical)
    const isNew = isListed && !connections.isOpen(physical)
    connections.meet(physical, query.state ?? undefined)
    connections.ask(physical, isListed ? undefined : physical.queue)
    this.#physical = physical
    this.#counters.taken()
    physical.onclose = () => {
      connections.closed(physical)
      this.#counters.left()
    }
    if (isNew && this.#isFirst && connections.idle === undefined) {
      connections.whenIdle(physical, () => this.#reserve())
      return true
    }
    const pin = new Pin(this.#sql, physical, () => {
      const { idle } = connections
      connections.answered(physical, isListed ? undefined : physical.queue)
      // `sql.end()` can have been called while it was opened. postgres.js closes it when the pin is released, and would not if it was reserved.
      if (idle === undefined || isListed) return
      pin.moveTo(idle)
      this.#reserve()
      if (physical.queue === idle) physical.idleTimer.start()
    })
    this.#pin = pin
    return false
  }
}

/** One that was open is taken from its list to have a query sent on it; one that is opened for the query is in its list. */
function isInList(physical: PhysicalConnection): boolean {
  if (physical.queue.remove(physical) === null) return false
  physical.queue.push(physical)
  return true
}
