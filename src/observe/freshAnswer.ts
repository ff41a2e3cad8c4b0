import { setTimeout as delay } from 'node:timers/promises'

/** An answer this young serves the other metrics of the same scrape. */
const FRESH_MS = 1000
/** Prometheus gives a scrape ten seconds: one without this is better than none. */
const LONGEST_MS = 5000

/**
 * Asks the database when metrics are read, and once for all of them. One question at a time: a database that does not answer is not asked
 * more and more. What could not be found out in time is not there: an old value would look like a good one.
 */
export class FreshAnswer<Each> {
  readonly #ask: () => Promise<readonly Each[]>
  #asked: { readonly at: number; readonly answer: Promise<readonly Each[]> } | undefined
  #pending = false

  constructor(ask: () => Promise<readonly Each[]>) {
    this.#ask = ask
  }

  async read(): Promise<readonly Each[]> {
    if (this.#asked === undefined || (!this.#pending && performance.now() - this.#asked.at > FRESH_MS)) this.#askAgain()
    const over = new AbortController()
    const late = delay(LONGEST_MS, [], { signal: over.signal, ref: false }).catch(() => [])
    return Promise.race([this.#asked?.answer ?? [], late]).finally(() => over.abort())
  }

  #askAgain(): void {
    this.#pending = true
    const answer = this.#ask()
      .catch(() => [])
      .finally(() => (this.#pending = false))
    this.#asked = { at: performance.now(), answer }
  }
}
