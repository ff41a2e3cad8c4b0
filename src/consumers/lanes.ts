import { nameOf } from '../events/index.ts'
import type { InboxEvent } from '../inbox/index.ts'
import type { Delivery } from '../outbox/index.ts'
import { type Applier, type ApplyContext, HELD } from './applier.ts'
import { Places, type Release } from './places.ts'
import { TransactionSize } from './transactionSize.ts'

/** How the events of a consumer share transactions. */
export interface LanesPlan<Event> {
  /** Transactions at once. */
  readonly concurrency: number
  /** Events in one transaction, at most. */
  readonly batch: number
  /** Whether events of several keys can be in one transaction. */
  readonly shared: boolean
  readonly limitBy?: { readonly tenant: (event: Event) => string; readonly concurrency: number } | undefined
}

export interface LanesContext extends ApplyContext {
  /** How long a transaction may take before its streams are answered as slow. Undefined: as long as it takes. */
  readonly slowAfterMs?: number | undefined
}

/** Streams that are applied one transaction after the other. */
interface Lane {
  readonly tenant: string | undefined
  /** Places in the batch, in order. */
  places: number[]
  /** What an earlier call has left in progress of its only stream. */
  readonly pending?: Pending
}

/** What a transaction that was answered as slow comes to, for one of its streams. */
interface Pending {
  readonly work: Promise<unknown>
  /** Of the ownership in which it began. In another one its failure does not count: meanwhile another process may have applied the event. */
  readonly signal: AbortSignal
  failure: Failure | undefined
}

/** An event that failed in such a transaction. It is answered when the event comes again. */
interface Failure {
  readonly event: InboxEvent
  readonly answer: Delivery
  /** By `performance.now()`. */
  readonly at: number
}

/** After this multiple of `slowAfterMs`, a lane leaves the rest of its events for another call. */
const LANE_TURNS = 5
/** A failure that no batch asks for is dropped after this time: another process owns its shard by then. */
const FAILURE_KEPT_MS = 5 * 60_000
/** The maximum number that is kept. */
const MOST_KEPT = 10_000

/**
 * Applies the events of a batch: keys in parallel, the events of a key one after the other.
 *
 * A batch is divided into lanes, each with streams of one tenant. A lane takes a place, applies its next events in one transaction, and
 * releases the place. How many events that are follows from how long the last ones took: so slow handlers have a transaction each, and
 * quick ones share it.
 *
 * A transaction that takes longer than `slowAfterMs` continues, and its streams are answered as slow. When they come again, they wait for it. If an
 * event has failed in it, that is its answer then: otherwise no failure of a slow handler would ever count.
 */
export class Lanes<Event extends InboxEvent> {
  readonly #applier: Applier<Event>
  readonly #options: LanesPlan<Event>
  readonly #places: Places
  /** By stream: transactions that were answered as slow. */
  readonly #pending = new Map<string, Pending>()
  readonly #underWay = new Set<Promise<unknown>>()
  readonly #size: TransactionSize

  constructor(applier: Applier<Event>, options: LanesPlan<Event>) {
    this.#applier = applier
    this.#options = options
    this.#size = new TransactionSize(options.batch)
    this.#places = new Places(options.concurrency, options.limitBy?.concurrency)
  }

  /** One answer for each event, in their order. */
  async apply(events: readonly Event[], context: LanesContext): Promise<Delivery[]> {
    const answers = events.map(() => HELD)
    const work = this.#divide(events).map((lane) => this.#run(lane, events, context, answers))
    await Promise.all(work)
    return answers
  }

  /** Comes back when nothing is in progress. */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay)
  }

  #divide(events: readonly Event[]): Lane[] {
    const { limitBy, concurrency, shared } = this.#options
    const lanes: Lane[] = []
    const tenants = new Map<string | undefined, number[][]>()
    for (const places of streamsOf(events)) {
      const first = events[places[0] as number] as Event
      const tenant = limitBy?.tenant(first)
      const pending = this.#pendingOf(nameOf(first))
      if (pending !== undefined) lanes.push({ tenant, places, pending })
      else if (!shared) lanes.push({ tenant, places })
      else {
        const streams = tenants.get(tenant)
        if (streams === undefined) tenants.set(tenant, [places])
        else streams.push(places)
      }
    }
    for (const [tenant, streams] of tenants) {
      const count = streams.reduce((sum, places) => sum + places.length, 0)
      const many = Math.min(streams.length, concurrency, Math.ceil(count / this.#size.now))
      const parts = Array.from({ length: many }, (): Lane => ({ tenant, places: [] }))
      // The longest streams first, each into the lane that has the least.
      for (const places of streams.toSorted((one, other) => other.length - one.length)) {
        const least = parts.reduce((one, other) => (other.places.length < one.places.length ? other : one))
        least.places = least.places.concat(places)
      }
      for (const lane of parts) lane.places.sort((one, other) => one - other)
      lanes.push(...parts)
    }
    return lanes
  }

  async #run(lane: Lane, events: readonly Event[], context: LanesContext, answers: Delivery[]): Promise<void> {
    const { slowAfterMs } = context
    let left = lane.places
    const slow = (places: readonly number[], reason: string): void => {
      for (const [first] of streamsAt(events, places)) answers[first as number] = { slow: reason }
    }
    let failure: Failure | undefined
    let failed: number | undefined
    if (lane.pending !== undefined) {
      if (await isLate(lane.pending.work, slowAfterMs)) return slow(left, 'its transaction is still in progress')
      failure = this.#failureOf(lane.pending, events[left[0] as number] as Event, context)
      const at = left.findIndex((place) => isSame(events[place] as Event, failure?.event))
      // Those before it were applied then, or are now.
      if (at !== -1) [failed, left] = [left[at], left.slice(0, at)]
    }
    const endsAt = slowAfterMs === undefined ? Infinity : performance.now() + slowAfterMs * LANE_TURNS
    for (let begun = false; left.length > 0; begun = true) {
      if (begun && performance.now() > endsAt)
        return slow(left, `its turn was over after ${slowAfterMs} ms (slowAfterMs)`)
      const now = left.slice(0, this.#size.now)
      const release = await this.#takePlace(lane, context)
      if (release === undefined) return slow(left, 'its tenant has all places that it may have (limitBy)')
      const applied = this.#applyNow(events, now, context, release)
      const answer = slowAfterMs === undefined ? await applied : await within(applied, slowAfterMs)
      if (answer === undefined) {
        this.#leave(events, now, applied, context)
        slow(now, `it took more than ${slowAfterMs} ms (slowAfterMs)`)
      } else now.forEach((place, index) => (answers[place] = answer[index] as Delivery))
      const stopped = new Set(
        now.filter((place) => answers[place] !== 'sent').map((place) => nameOf(events[place] as Event)),
      )
      left = left.slice(now.length)
      if (stopped.size > 0) left = left.filter((place) => !stopped.has(nameOf(events[place] as Event)))
    }
    if (failure === undefined || failed === undefined) return
    const at = failed
    if (lane.places.every((place) => place >= at || answers[place] === 'sent')) answers[at] = failure.answer
  }

  async #takePlace({ tenant }: Lane, { slowAfterMs }: LanesContext): Promise<Release | undefined> {
    if (this.#options.limitBy === undefined || slowAfterMs === undefined) return this.#places.take(tenant)
    const late = new AbortController()
    const timer = setTimeout(() => late.abort(), slowAfterMs)
    try {
      return await this.#places.take(tenant, late.signal)
    } finally {
      clearTimeout(timer)
    }
  }

  #applyNow(
    events: readonly Event[],
    places: readonly number[],
    context: LanesContext,
    release: Release,
  ): Promise<Delivery[]> {
    const some = places.map((place) => events[place] as Event)
    const applied = this.#applier.apply(some, { ...context, committed: this.#learn }).finally(() => {
      release()
      this.#underWay.delete(applied)
    })
    this.#underWay.add(applied)
    return applied
  }

  readonly #learn = (events: number, handlingMs: number, restMs: number): void =>
    this.#size.learn(events, handlingMs, restMs)

  #leave(
    events: readonly Event[],
    places: readonly number[],
    applied: Promise<Delivery[]>,
    { signal }: LanesContext,
  ): void {
    const indexes = new Map(places.map((place, index) => [place, index]))
    for (const stream of streamsAt(events, places)) {
      const name = nameOf(events[stream[0] as number] as Event)
      const pending: Pending = { work: applied, signal, failure: undefined }
      this.#pending.delete(name)
      this.#pending.set(name, pending)
      void applied.then((answers) => {
        if (this.#pending.get(name) !== pending) return
        const answerAt = (place: number): Delivery => answers[indexes.get(place) as number] as Delivery
        const stopped = stream.find((place) => answerAt(place) !== 'sent')
        if (stopped === undefined || !isFailure(answerAt(stopped))) this.#pending.delete(name)
        else {
          pending.failure = { event: events[stopped] as Event, answer: answerAt(stopped), at: performance.now() }
          this.#forgetOldest()
        }
      })
    }
  }

  #pendingOf(name: string): Pending | undefined {
    const pending = this.#pending.get(name)
    if (pending?.failure === undefined || performance.now() - pending.failure.at < FAILURE_KEPT_MS) return pending
    this.#pending.delete(name)
    return undefined
  }

  /** The failure of what has ended, once. */
  #failureOf(pending: Pending, event: Event, { signal }: LanesContext): Failure | undefined {
    const name = nameOf(event)
    if (this.#pending.get(name) === pending) this.#pending.delete(name)
    return pending.signal === signal ? pending.failure : undefined
  }

  #forgetOldest(): void {
    if (this.#pending.size <= MOST_KEPT) return
    for (const [name, { failure }] of this.#pending) {
      if (failure === undefined) continue
      this.#pending.delete(name)
      return
    }
  }
}

/** Whether the event is to blame. What says nothing about it is tried again. */
function isFailure(answer: Delivery): boolean {
  return typeof answer === 'object' && ('refused' in answer || 'failed' in answer)
}

/** An event whose number was given up meanwhile is another one. */
function isSame(event: InboxEvent, other: InboxEvent | undefined): boolean {
  return event.id === other?.id && isTombstone(event) === isTombstone(other)
}

function isTombstone({ tombstone = false }: InboxEvent): boolean {
  return tombstone !== null && tombstone !== false
}

/** The places of each stream's events. */
function streamsOf(events: readonly InboxEvent[]): number[][] {
  return streamsAt(events, [...events.keys()])
}

function streamsAt(events: readonly InboxEvent[], places: readonly number[]): number[][] {
  const streams = new Map<string, number[]>()
  for (const place of places) {
    const name = nameOf(events[place] as InboxEvent)
    const list = streams.get(name)
    if (list === undefined) streams.set(name, [place])
    else list.push(place)
  }
  return [...streams.values()]
}

async function isLate(work: Promise<unknown>, ms: number | undefined): Promise<boolean> {
  const done = work.then(() => true)
  return ms === undefined ? !(await done) : (await within(done, ms)) === undefined
}

/** Undefined where it is not done in time. The work never rejects. */
function within<T>(work: Promise<T>, ms: number): Promise<T | undefined> {
  return new Promise<T | undefined>((resolve) => {
    const timer = setTimeout(() => resolve(undefined), ms)
    void work.then((value) => {
      clearTimeout(timer)
      resolve(value)
    })
  })
}
