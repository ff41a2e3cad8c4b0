import { setTimeout as delay } from 'node:timers/promises'

/** The part of `lockstep.outbox` that tells how far behind dispatchers are. */
export interface OutboxToWatch {
  status(): Promise<{
    readonly shards: readonly {
      readonly dispatcher: string
      readonly lagEvents: number
      readonly lagMs: number
      readonly parkedStreams: number
    }[]
  }>
}

/** How far behind one dispatcher is, all shards together. */
export interface DispatcherLag {
  readonly dispatcher: string
  /** Events that were committed and are not delivered. */
  readonly events: number
  /** The age of the oldest of them. */
  readonly seconds: number
  readonly parkedStreams: number
}

/** An answer this young serves the other metrics of the same scrape. */
const FRESH_MS = 1000
/** Prometheus gives a scrape ten seconds: one without the lag is better than none. */
const LONGEST_MS = 5000

/**
 * Asks the database how far behind the dispatchers are, when somebody reads the metrics, and once for all of them. One question at a time:
 * a database that does not answer is not asked more and more. What could not be found out in time is not there: an old value would look
 * like a good one.
 */
export class OutboxLag {
  readonly #outbox: OutboxToWatch
  #asked: { readonly at: number; readonly answer: Promise<readonly DispatcherLag[]> } | undefined
  #pending = false

  constructor(outbox: OutboxToWatch) {
    this.#outbox = outbox
  }

  async read(): Promise<readonly DispatcherLag[]> {
    if (this.#asked === undefined || (!this.#pending && performance.now() - this.#asked.at > FRESH_MS)) this.#ask()
    const over = new AbortController()
    const late = delay(LONGEST_MS, [], { signal: over.signal, ref: false }).catch(() => [])
    return Promise.race([this.#asked?.answer ?? [], late]).finally(() => over.abort())
  }

  #ask(): void {
    this.#pending = true
    const answer = this.#outbox
      .status()
      .then(({ shards }) => byDispatcher(shards))
      .catch(() => [])
      .finally(() => (this.#pending = false))
    this.#asked = { at: performance.now(), answer }
  }
}

function byDispatcher(shards: Awaited<ReturnType<OutboxToWatch['status']>>['shards']): DispatcherLag[] {
  const found = new Map<string, DispatcherLag>()
  for (const { dispatcher, lagEvents, lagMs, parkedStreams } of shards) {
    const { events = 0, seconds = 0, parkedStreams: parked = 0 } = found.get(dispatcher) ?? {}
    found.set(dispatcher, {
      dispatcher,
      events: events + lagEvents,
      seconds: Math.max(seconds, lagMs / 1000),
      parkedStreams: parked + parkedStreams,
    })
  }
  return [...found.values()]
}
