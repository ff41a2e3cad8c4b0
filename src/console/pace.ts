/** Of the time of one connection, all questions together take no more than this. */
const LARGEST_SHARE = 0.02
/** However dear a question is, it is asked again after this. */
const LONGEST_PAUSE_MS = 5 * 60_000
/** A database that is away is asked at least as often. */
const LONGEST_BACKOFF_MS = 5000

/** How often a question is asked, and how long its answers take. */
export class Pace {
  readonly everyMs: number
  #startedAt = -Infinity
  #endedAt = -Infinity
  #lastMs = 0
  #tookMs = 0
  #failures = 0

  constructor(everyMs: number) {
    this.everyMs = everyMs
  }

  /** One answer that comes late says little: a new connection, a busy moment. Two in a row are taken at their word. */
  get tookMs(): number {
    return this.#tookMs
  }

  started(): void {
    this.#startedAt = performance.now()
  }

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

  /** When it is due, where it may be asked once in so many milliseconds. */
  dueAt(intervalMs: number): number {
    if (this.#failures === 0) return this.#startedAt + intervalMs
    return this.#endedAt + Math.min(LONGEST_BACKOFF_MS, this.everyMs * 2 ** (this.#failures - 1))
  }
}

/**
 * How often each may be asked, so that all of them keep to the share. Each has an equal part of it; what the cheap ones do not need of
 * theirs, the dear ones have. So a dear one is asked less often, and does not slow down the others.
 */
export function intervalsOf(paces: readonly Pace[]): ReadonlyMap<Pace, number> {
  const demand = ({ tookMs, everyMs }: Pace): number => tookMs / everyMs
  const intervals = new Map<Pace, number>()
  let left = LARGEST_SHARE
  let count = paces.length
  for (const pace of paces.toSorted((one, other) => demand(one) - demand(other))) {
    const share = Math.min(demand(pace), left / count--)
    left -= share
    const neededMs = share === 0 ? 0 : pace.tookMs / share
    intervals.set(pace, Math.min(LONGEST_PAUSE_MS, Math.max(pace.everyMs, neededMs)))
  }
  return intervals
}
