/** A transaction should take about so long: more events cost the others their turn, fewer are not worth a COMMIT. */
const TARGET_MS = 100
/** With so many a consumer begins: how long its handler takes is not known yet. */
const FIRST_SIZE = 8
/** How much the last transaction counts for the time of an event. */
const WEIGHT = 0.2

/** How many events the next transaction should have: at first they double, then they take about 100 ms. */
export class TransactionSize {
  readonly #most: number
  #now: number
  #msPerEvent: number | undefined

  constructor(most: number) {
    this.#most = most
    this.#now = Math.min(most, FIRST_SIZE)
  }

  get now(): number {
    return this.#now
  }

  learn(events: number, tookMs: number): void {
    const each = tookMs / events
    this.#msPerEvent = this.#msPerEvent === undefined ? each : this.#msPerEvent * (1 - WEIGHT) + each * WEIGHT
    const wanted = Math.floor(TARGET_MS / Math.max(this.#msPerEvent, 0.001))
    this.#now = Math.max(1, Math.min(this.#most, wanted, this.#now * 2))
  }
}
