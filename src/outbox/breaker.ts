import { backoffMs } from './backoff.ts'

/** Nothing got through for this many tries in a row before the wait is as long as it gets. */
const MAX_PAUSE_MS = 10_000
const FIRST_PAUSE_MS = 100

/**
 * Distinguishes a sink that is down from an event that is bad. Open: nothing gets through, so nothing is sent for a while and no event is
 * blamed for it. One for each dispatcher of a process: what one shard gets through closes it for all.
 */
export class Breaker {
  #failures = 0
  #openUntil = 0
  /** Not 0, which is when the process began: in its first minute that would be a success of the last minute. */
  #lastSuccess = Number.NEGATIVE_INFINITY
  readonly #changed: (open: boolean, reason: string) => void

  /** `changed` is called when it opens and when it closes. */
  constructor(changed: (open: boolean, reason: string) => void) {
    this.#changed = changed
  }

  get open(): boolean {
    return this.#failures > 0
  }

  /** How long nothing is to be sent. */
  get waitMs(): number {
    return Math.max(0, this.#openUntil - performance.now())
  }

  /** Whether something got through after the given time, by `performance.now()`. */
  succeededSince(time: number): boolean {
    return this.#lastSuccess > time
  }

  succeeded(): void {
    this.#lastSuccess = performance.now()
    if (this.#failures === 0) return
    this.#failures = 0
    this.#openUntil = 0
    this.#changed(false, 'it takes events again')
  }

  /** Nothing of a batch got through. */
  failed(reason: string, retryAfterMs = 0): void {
    // Several shards find out at the same time: that is one failure.
    if (this.waitMs > 0 && this.#failures > 0) return
    const pause = Math.max(backoffMs(this.#failures, FIRST_PAUSE_MS, MAX_PAUSE_MS), retryAfterMs)
    this.#openUntil = performance.now() + pause
    if (this.#failures++ === 0) this.#changed(true, reason)
  }
}
