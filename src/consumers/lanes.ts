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
  /** What is under way of its only stream since an earlier call. */
  readonly pending?: Promise<unknown>
}

/** A lane leaves the rest of its events for another call after so many times `slowAfterMs`. */
const LANE_TURNS = 5

/**
 * Applies the events of a batch in parallel: keys side by side, the events of a key one after the other.
 *
 * A batch is divided into lanes, each with streams of one tenant. A lane takes a place, applies its next events in one transaction, and
 * releases the place. How many events that are follows from how long the last ones took: so slow handlers have a transaction each, and
 * quick ones share it.
 *
 * A transaction that takes longer than `slowAfterMs` goes on, and its streams are answered as slow. When they come again, they wait for it.
 */
export class Lanes<Event extends InboxEvent> {
  readonly #applier: Applier<Event>
  readonly #options: LanesPlan<Event>
  readonly #places: Places
  /** By stream: transactions that were answered as slow. */
  readonly #pending = new Map<string, Promise<unknown>>()
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

  /** Comes back when nothing is under way. */
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
      const pending = this.#pending.get(nameOf(first))
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
    if (lane.pending !== undefined && (await isLate(lane.pending, slowAfterMs))) {
      return slow(left, 'its transaction is still under way')
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
        this.#leave(events, now, applied)
        slow(now, `it took more than ${slowAfterMs} ms (slowAfterMs)`)
      } else now.forEach((place, index) => (answers[place] = answer[index] as Delivery))
      const stopped = new Set(
        now.filter((place) => answers[place] !== 'sent').map((place) => nameOf(events[place] as Event)),
      )
      left = left.slice(now.length)
      if (stopped.size > 0) left = left.filter((place) => !stopped.has(nameOf(events[place] as Event)))
    }
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

  #leave(events: readonly Event[], places: readonly number[], applied: Promise<unknown>): void {
    const names = new Set(places.map((place) => nameOf(events[place] as Event)))
    for (const name of names) this.#pending.set(name, applied)
    void applied.then(() => {
      for (const name of names) if (this.#pending.get(name) === applied) this.#pending.delete(name)
    })
  }
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
