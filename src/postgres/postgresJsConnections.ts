import type { Suspect } from './poolRecovery.ts'
import {
  type Backend,
  type PhysicalConnection,
  type PostgresJs,
  type PostgresJsQuery,
  unsupported,
} from './postgresJsClient.ts'
import { closeConnection } from './postgresJsSocket.ts'
import { keepWriting } from './postgresJsWrites.ts'

/** A list of connections of postgres.js that are in the same state. */
type List = PhysicalConnection['queue']

/** What is known of one. In place: what goes into and out of a Map with each transaction costs each of them more than this. */
interface Known {
  backend: Backend | undefined
  isOpen: boolean
  /** Whether a query of ours is to be answered by it before it is ours. */
  isAsked: boolean
  /** Whether it is in Lockstep's hands, and how it came there. */
  by: 'reserve' | 'pin' | undefined
  /** Whether its idle timer shows when it is idle. */
  isWatched: boolean
  /** What is done when it comes idle for the first time. */
  whenIdle: (() => void) | undefined
  /** What is done when it has closed: `sql.end()` was called, and waits for that. */
  whenClosed: (() => void) | undefined
}

/**
 * The connections of a postgres.js pool, as far as queries of ours have met them. There are as many as the pool is large, and each is
 * opened again in its place. In which list one is says what it does.
 */
export class PostgresJsConnections {
  /** The list of idle connections. Unknown until one has been idle. */
  idle: List | undefined
  /** The one that was last taken from the idle ones. */
  lastTaken: PhysicalConnection | undefined
  /** How many are open, as far as known. */
  openCount = 0
  /** The list of those that a caller has for itself. Unknown until one of ours was in it. */
  #reserved: List | undefined
  /** The list of those that have queries on their way and take more, and that of those that take none. */
  #busy: List | undefined
  #full: List | undefined
  /** The list of those that have closed. Unknown until one of ours has. */
  #closed: List | undefined
  readonly #sql: PostgresJs
  readonly #all = new Map<PhysicalConnection, Known>()

  constructor(sql: PostgresJs) {
    this.#sql = sql
  }

  #of(physical: PhysicalConnection): Known {
    let known = this.#all.get(physical)
    if (known === undefined) {
      known = {
        backend: undefined,
        isOpen: false,
        isAsked: false,
        by: undefined,
        isWatched: false,
        whenIdle: undefined,
        whenClosed: undefined,
      }
      this.#all.set(physical, known)
      this.#watchEnd(known, physical)
      keepWriting(physical, this.#sql)
    }
    return known
  }

  isOpen(physical: PhysicalConnection): boolean {
    return this.#of(physical).isOpen
  }

  /** Notes a connection that a query of ours was sent on. */
  meet(physical: PhysicalConnection, backend: Backend | undefined): void {
    this.#meet(this.#of(physical), physical, backend)
  }

  #meet(known: Known, physical: PhysicalConnection, backend: Backend | undefined): void {
    if (!known.isOpen) this.openCount++
    known.isOpen = true
    if (backend !== undefined) known.backend = backend
    if (this.idle === undefined && !known.isWatched) this.#learnIdle(known, physical)
  }

  /** Notes one that a query of ours was sent on, and whether it was taken from a list for that. */
  ask(physical: PhysicalConnection, takenFrom: List | undefined): void {
    this.#of(physical).isAsked = true
    if (this.idle !== undefined && takenFrom !== this.idle) this.#busy ??= takenFrom
  }

  /** The query is answered. `full`: the list that it was in until then. */
  answered(physical: PhysicalConnection, full: List | undefined): void {
    this.#of(physical).isAsked = false
    this.#full ??= full
  }

  /** Whether one takes queries while it has others on their way, as far as known: then a query need not wait in the queue. */
  get mayBeBusy(): boolean {
    const busy = this.#busy
    return busy === undefined || [...this.#all.keys()].some(({ queue }) => queue === busy)
  }

  /** Notes a connection that a caller of ours has, by `sql.reserve()` or not. Returns its server process, where known. */
  take(physical: PhysicalConnection, backend: Backend | undefined, by: 'reserve' | 'pin'): Backend | undefined {
    const known = this.#of(physical)
    this.#meet(known, physical, backend)
    known.by = by
    if (by === 'reserve') this.#reserved ??= physical.queue
    return known.backend
  }

  /** Notes the server process of a connection. postgres.js keeps it in the same object when it opens the connection again. */
  know(physical: PhysicalConnection, backend: Backend): void {
    this.#of(physical).backend = backend
  }

  returnToPool(physical: PhysicalConnection): void {
    this.#of(physical).by = undefined
  }

  /** Notes that a connection has closed. */
  closed(physical: PhysicalConnection): void {
    const known = this.#of(physical)
    if (known.isOpen) this.openCount--
    known.isOpen = known.isAsked = false
    known.by = known.whenIdle = undefined
    this.#closed ??= physical.queue
    this.#meetAll()
    known.whenClosed?.()
  }

  /** Those, too, that only plain queries have used: they may close next. */
  #meetAll(): void {
    for (const list of new Set([this.idle, this.#reserved, this.#busy, this.#full, this.#closed])) {
      for (let left = list?.length ?? 0; left > 0; left--) {
        const physical = list?.shift() as PhysicalConnection
        list?.push(physical)
        this.#of(physical)
      }
    }
  }

  /** Whether `sql.end()` waits for it. */
  isEnding(physical: PhysicalConnection): boolean {
    return this.#of(physical).whenClosed !== undefined
  }

  /**
   * `sql.end()` waits for the answer to the query of each connection, also of one that has closed: postgres.js forgets such a query only when it
   * opens the connection again. Without this, `sql.end()` would wait forever after a connection was lost or destroyed in a query.
   */
  #watchEnd(known: Known, physical: PhysicalConnection): void {
    const end = physical.end as PhysicalConnection['end'] | undefined
    if (typeof end !== 'function') throw unsupported()
    physical.end = () => {
      const isClosed = physical.queue === this.#closed
      const ended = end()
      if (isClosed) return Promise.resolve()
      return new Promise<void>((resolve) => {
        const settle = (): void => {
          known.whenClosed = undefined
          resolve()
        }
        known.whenClosed = settle
        ended.then(settle, settle)
      })
    }
  }

  /** Does something in the moment in which a connection comes idle for the first time. */
  whenIdle(physical: PhysicalConnection, work: () => void): void {
    this.#of(physical).whenIdle = work
  }

  /** True where it did not come idle. */
  forgetIdle(physical: PhysicalConnection): boolean {
    const known = this.#of(physical)
    const waited = known.whenIdle !== undefined
    known.whenIdle = undefined
    return waited
  }

  /** Finds the list of idle connections: the one that a connection is in when its idle timer starts. */
  #learnIdle(known: Known, physical: PhysicalConnection): void {
    const timer = physical.idleTimer as PhysicalConnection['idleTimer'] | undefined
    if (typeof timer?.start !== 'function') throw unsupported()
    known.isWatched = true
    const start = timer.start.bind(timer)
    timer.start = () => {
      this.#found(physical.queue)
      timer.start = start
      const { whenIdle } = known
      known.whenIdle = undefined
      whenIdle?.()
      if (physical.queue === this.idle) start()
    }
  }

  /** Remembers which one leaves the list: `sql.reserve()` does not report that, and an option of the first query costs each transaction. */
  #found(idle: List): void {
    if (this.idle !== undefined) return
    this.idle = idle
    const shift = idle.shift.bind(idle)
    idle.shift = () => (this.lastTaken = shift() as PhysicalConnection | undefined)
  }

  /**
   * All that are open and not idle. Those that are being opened are left alone: `connect_timeout` is for them. While postgres.js asks a new
   * connection for types, to close it would end the process, because that rejection is not handled.
   */
  suspects(whose: 'all' | 'ours'): Suspect[] {
    return [...this.#all].flatMap(([physical, known]) => {
      const state = this.#stateOf(physical, known, whose)
      if (state === undefined) return []
      const { queue } = physical
      const suspect: Suspect = {
        id: physical,
        pid: known.backend?.pid ?? undefined,
        state,
        poke: () => this.#poke(physical, queue),
        end: () => closeConnection(physical, () => this.closed(physical)),
      }
      return [suspect]
    })
  }

  #stateOf(physical: PhysicalConnection, { isAsked, by }: Known, whose: 'all' | 'ours'): Suspect['state'] | undefined {
    if (isAsked) return 'asked'
    // Of one that was pinned the list says nothing.
    if (by === 'pin' || (by === undefined && whose === 'ours')) return undefined
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
