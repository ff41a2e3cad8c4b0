/** Each may take half of the share, also if several are expensive: otherwise a user who opens all tabs would see old data in each. */
const OWN_PART = 0.5
/** However expensive a query is, it runs again after this time. */
const LONGEST_PAUSE_MS = 5 * 60_000
/** A database that is away is asked at least as often. */
const LONGEST_BACKOFF_MS = 5000
/** The number of answers that the duration is averaged over. */
const REMEMBERED = 4
const PING_EVERY_MS = 5000
/** At least this part of the time counts: where a machine is short of time, so is the database, and the answer took some of it. */
const LEAST_PART = 0.25

/** Of the last few times the usual one: one that is long says little, such as the first, in which a connection is made. */
class TypicalTime {
  readonly #least: number
  #times: readonly number[] = []

  /** The minimum number of answers for an average. */
  constructor(least: number) {
    this.#least = least
  }

  add(tookMs: number): void {
    this.#times = [...this.#times, tookMs].slice(-REMEMBERED)
  }

  get ms(): number {
    const { length } = this.#times
    return length < this.#least
      ? 0
      : (this.#times.toSorted((one, other) => one - other)[Math.floor((length - 1) / 2)] ?? 0)
  }
}

/** What a question takes that asks for nothing: on a busy machine most of the time is not spent on the answer. */
export class Ping {
  readonly #times = new TypicalTime(1)
  #at = -Infinity

  get tookMs(): number {
    return this.#times.ms
  }

  async measure(ping: () => Promise<void>): Promise<void> {
    if (performance.now() - this.#at < PING_EVERY_MS) return
    // The first one makes a connection.
    if (this.#at === -Infinity) await ping()
    const from = (this.#at = performance.now())
    await ping()
    this.#times.add(performance.now() - from)
  }
}

/** How often a question is asked, and how long its answers take. */
export class PollRate {
  readonly everyMs: number
  #startedAt = -Infinity
  #endedAt = -Infinity
  readonly #times = new TypicalTime(2)
  #failures = 0

  constructor(everyMs: number) {
    this.everyMs = everyMs
  }

  get tookMs(): number {
    return this.#times.ms
  }

  started(): void {
    this.#startedAt = performance.now()
  }

  /** `wayMs` of the time was spent on the way. */
  answered(wayMs: number): void {
    this.#endedAt = performance.now()
    this.#failures = 0
    const tookMs = this.#endedAt - this.#startedAt
    this.#times.add(Math.max(tookMs * LEAST_PART, tookMs - wayMs))
  }

  failed(): void {
    this.#endedAt = performance.now()
    this.#failures++
  }

  /** Asked for at once, by a viewer that has changed something. */
  hurry(): void {
    this.#startedAt = -Infinity
    this.#endedAt = -Infinity
  }

  /** When it is due, if it can be asked once in this many milliseconds. */
  dueAt(intervalMs: number): number {
    if (this.#failures === 0) return this.#startedAt + intervalMs
    return this.#endedAt + Math.min(LONGEST_BACKOFF_MS, this.everyMs * 2 ** (this.#failures - 1))
  }
}

/**
 * How often each may be asked, where all may take that share of one connection's time. Each has an equal part of the share; what the
 * cheap ones do not need of theirs, the expensive ones have. So an expensive one runs less often, and does not slow down the others.
 *
 * With 1,000 locks, 1,000 leases and 1,000 parked streams the server takes 9 ms for the list of locks, 1.5 for leases, 5 for parked
 * streams, 1.1 for the overview's own, 0.9 for counting leases; for the outbox's status 0.5 where all is delivered, 230 with half a million
 * events behind.
 */
export function intervalsOf(rates: readonly PollRate[], share: number): ReadonlyMap<PollRate, number> {
  const demand = ({ tookMs, everyMs }: PollRate): number => tookMs / everyMs
  const intervals = new Map<PollRate, number>()
  let left = share
  let count = rates.length
  for (const rate of rates.toSorted((one, other) => demand(one) - demand(other))) {
    const part = Math.min(demand(rate), Math.max(share * OWN_PART, left / count--))
    left -= part
    const neededMs = part === 0 ? 0 : rate.tookMs / part
    intervals.set(rate, Math.min(LONGEST_PAUSE_MS, Math.max(rate.everyMs, neededMs)))
  }
  return intervals
}
