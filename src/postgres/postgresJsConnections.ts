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
  /** What `sql.end()` waits for: it was called, and the connection has not closed for good since. */
  ending: Promise<unknown> | undefined
}

const STAYS = (): void => undefined

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
    this.#watchCloses()
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
        ending: undefined,
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
    return this.#of(physical).ending !== undefined
  }

  /**
   * Rejects what a connection still has when it closes. postgres.js keeps the queries that were sent between the error of a socket and its
   * close, which are two turns of the event loop on Bun and Deno: when the connection is opened again, the first is answered with nothing
   * although no server has seen it, or the connection waits for the answers forever. It also keeps `sql.end()` waiting for the answer to a
   * query that it has rejected.
   *
   * Here the connection has no socket, and is in the list of the closed ones: `terminate()` only rejects, and has `sql.end()` continue. When
   * it is being opened again, that list has changed, and with several hosts `terminate()` would reject nothing.
   */
  #watchCloses(): void {
    const { options } = this.#sql
    const { onclose } = options
    options.onclose = (id) => {
      for (const [physical, known] of this.#all) if (physical.id === id) this.#settle(known, physical)
      return onclose?.call(options, id)
    }
  }

  #settle(known: Known, physical: PhysicalConnection): void {
    const closed = physical.queue
    this.#closed ??= closed
    physical.terminate()
    // In this very moment it is opened again if a query waits for it.
    queueMicrotask(() => {
      if (physical.queue === closed) known.ending = undefined
    })
  }

  /**
   * postgres.js forgets that a connection has to end when it terminates it. One that is then opened again, for a query that waited in the
   * queue when `sql.end()` was called, would stay open: no process with such a pool ends. So it is ended again, when that query is answered.
   */
  #watchEnd(known: Known, physical: PhysicalConnection): void {
    const { connect } = physical
    const end = physical.end as PhysicalConnection['end'] | undefined
    if (typeof end !== 'function') throw unsupported()
    physical.end = async () => {
      const isClosed = physical.queue === this.#closed
      const first = end()
      // It may wait for the answer to a query that was rejected.
      if (isClosed) return
      known.ending = first
      let awaited: Promise<unknown> | undefined
      do {
        awaited = known.ending
        await awaited
        // Another one: it was opened again.
      } while (known.ending !== undefined && known.ending !== awaited)
    }
    physical.connect = (query) => {
      connect(query)
      if (known.ending === undefined) return
      // One that is reserved stays in its list: in that of those that have ended it would not try another host.
      physical.reserved = STAYS
      known.ending = end()
      physical.reserved = null
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
