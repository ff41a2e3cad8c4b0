import type { ConsolePlan } from './consoleOptions.ts'
import { Overview } from './overview.ts'
import type { ConsoleQueries, QueryResults } from './queries.ts'
import { KEPT_MS, SAMPLE_MS } from './sampling.ts'
import type { HistorySample, OverviewSnapshot, WaitHistory } from './wire.ts'

/** Keys whose waits are remembered; of more, those with the longest waits. */
const MAX_KEYS = 500
/** Rows of the table. */
const SHOWN = 50

interface Waited {
  longestWaitMs: number
  mostWaiters: number
  seen: number
  lastAtMs: number
}

/**
 * The last hour, in the memory of this process: some 360 samples and 500 keys at most. While a page looks, its overviews are kept, and the
 * locks are listed if a session waits. While no page is open, the console queries nothing, unless it was created with `history`.
 */
export class History {
  readonly #queries: Pick<ConsoleQueries, 'ask'>
  readonly #plan: Pick<ConsolePlan, 'history' | 'share'>
  readonly #isWatched: () => boolean
  readonly #samples: HistorySample[] = []
  readonly #waits = new Map<string, Waited>()
  #overview = new Overview()
  #timer: NodeJS.Timeout | undefined
  #lockWaiters = 0
  /** By the monotonic clock. */
  #locksAtMs = -Infinity
  #closed = false

  /** `isWatched`: whether a page looks, which brings overviews by itself. */
  constructor(
    queries: Pick<ConsoleQueries, 'ask'>,
    plan: Pick<ConsolePlan, 'history' | 'share'>,
    isWatched: () => boolean,
  ) {
    this.#queries = queries
    this.#plan = plan
    this.#isWatched = isWatched
    if (plan.history) this.#sleep(SAMPLE_MS)
  }

  /** A page is open: until it is closed, the locks are listed whenever a session waits. */
  begin(): void {
    if (this.#timer === undefined) this.#sleep(SAMPLE_MS)
  }

  close(): void {
    this.#closed = true
    clearTimeout(this.#timer)
  }

  /** One sample is kept for each interval of this many milliseconds. */
  add(overview: Omit<OverviewSnapshot, 'at'>, atMs = Date.now()): void {
    this.#lockWaiters = overview.lockWaiters
    const last = this.#samples.at(-1)
    // A clock that was set back begins again.
    if (last !== undefined && Date.parse(last.at) > atMs) this.#samples.length = 0
    else if (last !== undefined && atMs - Date.parse(last.at) < SAMPLE_MS * 0.9) return
    this.#samples.push({
      at: new Date(atMs).toISOString(),
      commitsPerSecond: overview.commitsPerSecond,
      rollbacksPerSecond: overview.rollbacksPerSecond,
      enqueuedPerSecond: overview.enqueuedPerSecond,
      deliveredPerSecond: overview.deliveredPerSecond,
      lockWaiters: overview.lockWaiters,
      longestLockWaitMs: overview.longestLockWaitMs,
      outboxLagEvents: overview.outboxLagEvents,
      outboxLagMs: overview.outboxLagMs,
    })
    while (atMs - Date.parse(this.#samples[0]?.at ?? '') > KEPT_MS) this.#samples.shift()
  }

  /** Who waited for which key. */
  addLocks({ locks }: QueryResults['locks'], atMs = Date.now()): void {
    this.#locksAtMs = performance.now()
    for (const { key, id, waiters } of locks) {
      if (waiters.length === 0) continue
      const name = key ?? `lock ${id}`
      const before = this.#waits.get(name) ?? { longestWaitMs: 0, mostWaiters: 0, seen: 0, lastAtMs: atMs }
      this.#waits.set(name, {
        longestWaitMs: Math.max(before.longestWaitMs, ...waiters.map(({ waitedMs }) => waitedMs)),
        mostWaiters: Math.max(before.mostWaiters, waiters.length),
        seen: before.seen + 1,
        lastAtMs: atMs,
      })
    }
    this.#forget(atMs)
  }

  samples(): readonly HistorySample[] {
    return this.#samples
  }

  /** The longest waits first. */
  waits(nowMs = Date.now()): WaitHistory['waits'] {
    this.#forget(nowMs)
    return [...this.#waits]
      .toSorted(([, one], [, other]) => other.longestWaitMs - one.longestWaitMs)
      .slice(0, SHOWN)
      .map(([key, { lastAtMs, ...waited }]) => ({ key, ...waited, lastAt: new Date(lastAtMs).toISOString() }))
  }

  #forget(nowMs: number): void {
    for (const [name, { lastAtMs }] of this.#waits) if (nowMs - lastAtMs > KEPT_MS) this.#waits.delete(name)
    if (this.#waits.size <= MAX_KEYS) return
    const shortest = [...this.#waits].toSorted(([, one], [, other]) => one.longestWaitMs - other.longestWaitMs)
    for (const [name] of shortest.slice(0, this.#waits.size - MAX_KEYS)) this.#waits.delete(name)
  }

  #sleep(pauseMs: number): void {
    if (this.#closed) return
    this.#timer = setTimeout(() => void this.#look(), pauseMs).unref()
  }

  /** Never throws: what cannot be asked is a gap. */
  async #look(): Promise<void> {
    const watched = this.#isWatched()
    if (!watched && !this.#plan.history) {
      this.#timer = undefined
      return
    }
    const from = performance.now()
    try {
      if (!watched) {
        const { ask } = this.#queries
        this.add(this.#overview.take(await ask.pulse(), await ask.leaseCounts(), await ask.delivery()))
      }
      const fresh = performance.now() - this.#locksAtMs < SAMPLE_MS
      if (this.#lockWaiters > 0 && !fresh) this.addLocks(await this.#queries.ask.locks())
    } catch {
      // Rates are of two samples that follow each other. Pages that look receive by themselves that there is no answer.
      this.#overview = new Overview()
    }
    // Where answers take long, it asks less often.
    this.#sleep(Math.max(SAMPLE_MS, (performance.now() - from) / this.#plan.share))
  }
}
