/** A transaction should take about so long: more events cost the others their turn, fewer are not worth a COMMIT. */
const TARGET_MS = 100
/**
 * Where opening, the inbox and COMMIT take longer than that, the handlers of a transaction may take as long as they do, up to this: on a server that is
 * overloaded, transactions of one event would make it more so.
 */
const LONGEST_TARGET_MS = 400
/** With so many a consumer begins: how long its handler takes is not known yet. */
const FIRST_SIZE = 8
/** How much the last transaction counts for the time of an event. */
const WEIGHT = 0.2

/** How many events the next transaction should have: at first they double, then their handlers take about 100 ms. */
export class TransactionSize {
  readonly #most: number
  #now: number
  #msPerEvent: number | undefined
  /** What a transaction takes beside its handlers. */
  #otherMs: number | undefined

  constructor(most: number) {
    this.#most = most
    this.#now = Math.min(most, FIRST_SIZE)
  }

  get now(): number {
    return this.#now
  }

  /** `handlersMs`: how much of `tookMs` the handlers took; all of it where that is not known. */
  learn(events: number, tookMs: number, handlersMs = tookMs): void {
    this.#msPerEvent = weighted(this.#msPerEvent, handlersMs / events)
    this.#otherMs = weighted(this.#otherMs, tookMs - handlersMs)
    const targetMs = Math.max(TARGET_MS, Math.min(LONGEST_TARGET_MS, this.#otherMs))
    const wanted = Math.floor(targetMs / Math.max(this.#msPerEvent, 0.001))
    this.#now = Math.max(1, Math.min(this.#most, wanted, this.#now * 2))
  }
}

function weighted(before: number | undefined, last: number): number {
  return before === undefined ? last : before * (1 - WEIGHT) + last * WEIGHT
}
