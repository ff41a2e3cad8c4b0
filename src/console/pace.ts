/** Of the time of one connection, all questions together take no more than this. */
const LARGEST_SHARE = 0.02
/** However dear a question is, it is asked again after this. */
const LONGEST_PAUSE_MS = 5 * 60_000
/** A database that is away is asked at least as often. */
const LONGEST_BACKOFF_MS = 5000

/** When a question may be asked again: at its pace, or later where its answers take long. */
export class Pace {
  readonly #everyMs: number
  #startedAt = -Infinity
  #endedAt = -Infinity
  #lastMs = 0
  #tookMs = 0
  #failures = 0

  constructor(everyMs: number) {
    this.#everyMs = everyMs
  }

  started(): void {
    this.#startedAt = performance.now()
  }

  /** One answer that comes late says little: a new connection, a busy moment. Two in a row are taken at their word. */
  ended(failed: boolean): void {
    this.#endedAt = performance.now()
    this.#failures = failed ? this.#failures + 1 : 0
    if (failed) return
    const tookMs = this.#endedAt - this.#startedAt
    this.#tookMs = Math.min(tookMs, this.#lastMs)
    this.#lastMs = tookMs
  }

  /** Asked for at once, by somebody who has changed something. */
  hurry(): void {
    this.#startedAt = -Infinity
    this.#endedAt = -Infinity
  }

  /** When it is due, where so many questions share the time. */
  dueAt(questions: number): number {
    if (this.#failures > 0) {
      return this.#endedAt + Math.min(LONGEST_BACKOFF_MS, this.#everyMs * 2 ** (this.#failures - 1))
    }
    const pauseMs = Math.min(LONGEST_PAUSE_MS, (this.#tookMs * questions) / LARGEST_SHARE)
    return this.#startedAt + Math.max(this.#everyMs, pauseMs)
  }
}
