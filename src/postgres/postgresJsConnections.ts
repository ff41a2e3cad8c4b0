import type { Suspect } from './poolRecovery.ts'
import { type PhysicalConnection, type PostgresJs, type PostgresJsQuery, unsupported } from './postgresJsPool.ts'
import { closeConnection } from './postgresJsSocket.ts'

/** A list of connections of postgres.js that are in the same state. */
type List = PhysicalConnection['queue']

/** What postgres.js knows of the server's process; it changes when the connection is opened again. */
export interface Backend {
  readonly pid?: number | null
}

/**
 * The connections of a postgres.js pool, as far as queries of ours have met them. There are as many as the pool is large, and each is
 * opened again in its place. In which list one is says what it does.
 */
export class PostgresJsConnections {
  /** The list of idle connections. Unknown until one has been idle. */
  idle: List | undefined
  /** The list of those that a caller has for itself. Unknown until one of ours was in it. */
  #reserved: List | undefined
  /** The list of those that have queries on their way and take more, and that of those that take none. */
  #busy: List | undefined
  #full: List | undefined
  /** Those by which a query of ours is to be answered before they are ours. */
  readonly #asked = new Set<PhysicalConnection>()
  readonly #sql: PostgresJs
  readonly #met = new Map<PhysicalConnection, Backend | undefined>()
  /** Those that are open, as far as known. */
  readonly #open = new Set<PhysicalConnection>()
  /** Those in Lockstep's hands: whether by `sql.reserve()`. */
  readonly #ours = new Map<PhysicalConnection, boolean>()
  /** Those whose idle timer tells us when they are idle. */
  readonly #watched = new WeakSet<PhysicalConnection>()
  /** What is done when a connection comes idle for the first time. */
  readonly #whenIdle = new Map<PhysicalConnection, () => void>()

  constructor(sql: PostgresJs) {
    this.#sql = sql
  }

  get openCount(): number {
    return this.#open.size
  }

  isOpen(physical: PhysicalConnection): boolean {
    return this.#open.has(physical)
  }

  /** Notes a connection that a query of ours was sent on. */
  meet(physical: PhysicalConnection, backend: Backend | undefined): void {
    this.#open.add(physical)
    this.#met.set(physical, backend ?? this.#met.get(physical))
    if (this.idle === undefined && !this.#watched.has(physical)) this.#learnIdle(physical)
  }

  /** Notes one that a query of ours was sent on, and whether it was taken from a list for that. */
  ask(physical: PhysicalConnection, takenFrom: List | undefined): void {
    this.#asked.add(physical)
    if (this.idle !== undefined && takenFrom !== this.idle) this.#busy ??= takenFrom
  }

  /** The query is answered. `full`: the list that it was in until then. */
  answered(physical: PhysicalConnection, full: List | undefined): void {
    this.#asked.delete(physical)
    this.#full ??= full
  }

  /** Whether one takes queries while it has others on their way, as far as known: then a query need not wait in the queue. */
  get mayBeBusy(): boolean {
    const busy = this.#busy
    return busy === undefined || [...this.#met.keys()].some(({ queue }) => queue === busy)
  }

  /** Notes a connection that is in the hands of a caller of ours, by `sql.reserve()` or not. */
  take(physical: PhysicalConnection, isReserved: boolean): void {
    this.#ours.set(physical, isReserved)
    if (isReserved) this.#reserved ??= physical.queue
  }

  giveBack(physical: PhysicalConnection): void {
    this.#ours.delete(physical)
  }

  /** Notes that a connection has closed. */
  closed(physical: PhysicalConnection): void {
    this.#ours.delete(physical)
    this.#asked.delete(physical)
    this.#open.delete(physical)
    this.#whenIdle.delete(physical)
  }

  /** Does something in the moment in which a connection comes idle for the first time. */
  whenIdle(physical: PhysicalConnection, work: () => void): void {
    this.#whenIdle.set(physical, work)
  }

  /** True where it did not come idle. */
  forgetIdle(physical: PhysicalConnection): boolean {
    return this.#whenIdle.delete(physical)
  }

  /** Finds the list of idle connections: the one that a connection is in when its idle timer starts. */
  #learnIdle(physical: PhysicalConnection): void {
    const timer = physical.idleTimer as PhysicalConnection['idleTimer'] | undefined
    if (typeof timer?.start !== 'function') throw unsupported()
    this.#watched.add(physical)
    const start = timer.start.bind(timer)
    timer.start = () => {
      this.idle = physical.queue
      timer.start = start
      const work = this.#whenIdle.get(physical)
      this.#whenIdle.delete(physical)
      work?.()
      if (physical.queue === this.idle) start()
    }
  }

  /**
   * All that are open and not idle. Those that are being opened are left alone: `connect_timeout` is for them. While postgres.js asks a new
   * connection for types, to close it would end the process, because nobody handles that rejection.
   */
  suspects(whose: 'all' | 'ours'): Suspect[] {
    return [...this.#met].flatMap(([physical, backend]) => {
      const state = this.#stateOf(physical, whose)
      if (state === undefined) return []
      const { queue } = physical
      const suspect: Suspect = {
        id: physical,
        pid: backend?.pid ?? undefined,
        state,
        poke: () => this.#poke(physical, queue),
        end: () => closeConnection(physical),
      }
      return [suspect]
    })
  }

  #stateOf(physical: PhysicalConnection, whose: 'all' | 'ours'): Suspect['state'] | undefined {
    if (this.#asked.has(physical)) return 'asked'
    const isReserved = this.#ours.get(physical)
    // Of one that was pinned the list says nothing.
    if (isReserved === false || (isReserved === undefined && whose === 'ours')) return undefined
    const { queue } = physical
    if (queue === this.#reserved) return 'held'
    return queue === this.#busy || queue === this.#full ? 'asked' : undefined
  }

  /** An empty query: it takes no snapshot, and is answered in a failed transaction, too. */
  async #poke(physical: PhysicalConnection, reserved: List): Promise<void> {
    const query = this.#sql.unsafe('', [], { simple: true }) as PostgresJsQuery
    query.handler = () => {
      if (physical.queue === reserved) physical.execute(query)
      else query.reject(new Error('The connection is not held any more.'))
    }
    await query
  }
}
