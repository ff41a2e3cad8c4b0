/** How long the handlers of a transaction should take: more events delay other transactions, fewer are not worth a COMMIT. */
const TARGET_MS = 100
/** Where the rest of a transaction takes longer, because the server is far away or busy: as long as that, up to this. */
const MOST_MS = 1000
/** The initial number of events, when the duration of the handler is not known yet. */
const FIRST_SIZE = 8
/** How much the last transaction counts. */
const WEIGHT = 0.2

/**
 * How many events the next transaction should have. At first they double, then their handlers take about 100 ms. What a transaction takes besides, from
 * BEGIN to COMMIT, is the same for one event and for a hundred. It is shared by more events where it takes longer, and never a reason for fewer.
 */
export class TransactionSize {
  readonly #most: number
  #now: number
  #msPerEvent: number | undefined
  #restMs = 0

  constructor(most: number) {
    this.#most = most
    this.#now = Math.min(most, FIRST_SIZE)
  }

  get now(): number {
    return this.#now
  }

  /** A transaction was committed: how long the handlers of its events took, and the rest of it. */
  learn(events: number, handlingMs: number, restMs: number): void {
    const each = handlingMs / events
    this.#msPerEvent = this.#msPerEvent === undefined ? each : this.#msPerEvent * (1 - WEIGHT) + each * WEIGHT
    this.#restMs = this.#restMs * (1 - WEIGHT) + restMs * WEIGHT
    const targetMs = Math.min(MOST_MS, Math.max(TARGET_MS, this.#restMs))
    const wanted = Math.floor(targetMs / Math.max(this.#msPerEvent, 0.001))
    this.#now = Math.max(1, Math.min(this.#most, wanted, this.#now * 2))
  }
}
