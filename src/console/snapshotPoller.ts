import { AsyncLocalStorage } from 'node:async_hooks'
import { setTimeout as delay } from 'node:timers/promises'
import { messageOf } from './responses.ts'
import type { ConsolePlan } from './consoleOptions.ts'
import { History } from './history.ts'
import { Overview } from './overview.ts'
import { intervalsOf, Ping, PollRate } from './pollRate.ts'
import {
  type ConsoleQueries,
  PING_ROUND_TRIPS,
  POLL_INTERVALS,
  QUERIES,
  type QueryName,
  type QueryResults,
  ROUND_TRIPS,
  TAB_QUERIES,
} from './queries.ts'
import { LeaseSnapshots, locksSnapshot, outboxSnapshot } from './snapshots.ts'
import { frame, Viewer } from './viewer.ts'
import type { DatabaseProblem, Snapshots, Tab } from './wire.ts'

export const TABS = Object.keys(TAB_QUERIES) as readonly Tab[]

const MAX_VIEWERS = 50
const HEARTBEAT_MS = 15_000
/** A viewer that takes nothing for this long is let go: it may have the place of another viewer. */
const STUCK_MS = 60_000
/** From then on viewers receive that there is no answer. */
const SLOW_MS = 5000
/** close() does not wait for a database that does not answer. */
const CLOSE_MS = 2000

/** The last snapshot of a tab. */
interface Shown {
  readonly version: number
  /** All of it but its time. */
  readonly text: string
  readonly bytes: Uint8Array
}

/**
 * Looks for all viewers at once. One question at a time, so that one connection is enough; only what a viewer wants to see; and each
 * at its own pace, however many look.
 */
export class SnapshotPoller {
  readonly #queries: ConsoleQueries
  readonly #share: number
  readonly #viewers = new Set<Viewer>()
  readonly #rates: Readonly<Record<QueryName, PollRate>>
  readonly #ping = new Ping()
  readonly #answers: { -readonly [Name in QueryName]?: QueryResults[Name] } = {}
  readonly #shown = new Map<Tab, Shown>()
  /** Questions whose last answer was none. */
  readonly #troubles = new Map<QueryName, Uint8Array>()
  /** The questions belong to no request, and to no trace or transaction of one. */
  readonly #outside = AsyncLocalStorage.snapshot()
  readonly #leases = new LeaseSnapshots()
  /** Each tab from the answers that it needs; undefined where one is missing. */
  readonly #make: { readonly [Name in Tab]: () => Omit<Snapshots[Name], 'at'> | undefined } = {
    overview: () => {
      const { pulse, leaseCounts, delivery } = this.#answers
      const taken = pulse && leaseCounts && delivery && this.#overview.take(pulse, leaseCounts, delivery)
      if (taken !== undefined) this.history.add(taken)
      return taken
    },
    locks: () => {
      const { locks } = this.#answers
      if (locks !== undefined) this.history.addLocks(locks)
      return locks && locksSnapshot(locks)
    },
    leases: () => {
      const { leases, leaseCounts } = this.#answers
      return leases && leaseCounts && this.#leases.take(leases, Number(leaseCounts.names), Date.now())
    },
    outbox: () => {
      const { delivery, parked } = this.#answers
      return delivery && parked && outboxSnapshot(delivery.status, parked)
    },
  }
  /** What of all this is remembered for an hour. */
  readonly history: History
  #overview = new Overview()
  #versions = 0
  #looking: Promise<void> | undefined
  #wake: AbortController | undefined
  #heart: NodeJS.Timeout | undefined
  #closed = false

  constructor(queries: ConsoleQueries, plan: Pick<ConsolePlan, 'everyMs' | 'share' | 'history'>) {
    const { everyMs, share } = plan
    this.#queries = queries
    this.history = new History(queries, plan, () => this.#viewers.size > 0)
    this.#share = share
    this.#rates = Object.fromEntries(
      QUERIES.map((name) => [name, new PollRate(everyMs * POLL_INTERVALS[name])]),
    ) as Readonly<Record<QueryName, PollRate>>
  }

  /** One more viewer; undefined where there are enough. `ended` is called when it has gone. */
  add(
    tabs: ReadonlySet<Tab>,
    visit: string | undefined,
    ended: () => void = () => undefined,
  ): ReadableStream<Uint8Array> | undefined {
    if (this.#viewers.size >= MAX_VIEWERS || this.#closed) return undefined
    const viewer = new Viewer(tabs, visit, (left) => this.#remove(left), ended)
    // Rates are of the time in which a viewer looks.
    if (tabs.has('overview') && !this.#isWatched('overview')) this.#overview = new Overview()
    this.#viewers.add(viewer)
    const dueAt = this.#dueTimes()
    for (const tab of tabs) {
      const shown = this.#shown.get(tab)
      const trouble = TAB_QUERIES[tab].map((name) => this.#troubles.get(name)).find((each) => each !== undefined)
      const fresh = TAB_QUERIES[tab].every((name) => (dueAt.get(name) ?? 0) > performance.now())
      if (trouble !== undefined) viewer.trouble(trouble)
      else if (shown !== undefined && fresh) viewer.show(tab, shown.version, shown.bytes)
    }
    this.#outside(() => {
      this.history.begin()
      this.#start()
    })
    return viewer.stream
  }

  /** Looks at a tab again, without waiting for its time. */
  hurry(tab: Tab): void {
    for (const name of TAB_QUERIES[tab]) this.#rates[name].hurry()
    this.#wake?.abort()
  }

  /** Ends the streams of a visit. */
  end(visit: string): void {
    for (const viewer of this.#viewers) if (viewer.visit === visit) this.#dismiss(viewer)
  }

  async close(): Promise<void> {
    this.#closed = true
    this.history.close()
    for (const viewer of this.#viewers) this.#dismiss(viewer)
    this.#wake?.abort()
    await Promise.race([this.#looking, delay(CLOSE_MS, undefined, { ref: false })])
  }

  #start(): void {
    this.#heart ??= setInterval(() => this.#beat(), HEARTBEAT_MS).unref()
    this.#wake?.abort()
    this.#looking ??= this.#look()
  }

  #remove(viewer: Viewer): void {
    if (this.#viewers.delete(viewer)) viewer.ended()
    if (this.#viewers.size > 0) return
    clearInterval(this.#heart)
    this.#heart = undefined
    this.#wake?.abort()
  }

  #dismiss(viewer: Viewer): void {
    viewer.close()
    this.#remove(viewer)
  }

  #beat(): void {
    for (const viewer of this.#viewers) {
      if (viewer.stuckMs > STUCK_MS) this.#dismiss(viewer)
      else viewer.heartbeat()
    }
  }

  #isWatched(tab: Tab): boolean {
    return [...this.#viewers].some(({ tabs }) => tabs.has(tab))
  }

  /** When each question that a viewer needs is due, in the order of asking. */
  #dueTimes(): ReadonlyMap<QueryName, number> {
    const wanted = QUERIES.filter((name) => TABS.some((tab) => TAB_QUERIES[tab].includes(name) && this.#isWatched(tab)))
    const intervals = intervalsOf(
      wanted.map((name) => this.#rates[name]),
      this.#share,
    )
    return new Map(
      wanted.map((name) => [name, this.#rates[name].dueAt(intervals.get(this.#rates[name]) as number)] as const),
    )
  }

  async #look(): Promise<void> {
    while (this.#viewers.size > 0) {
      const times = [...this.#dueTimes()]
      const now = performance.now()
      const due = times.find(([, at]) => at <= now)
      if (due === undefined) await this.#pause(Math.min(...times.map(([, at]) => at)) - now)
      else await this.#ask(due[0])
    }
    // Without a pause since the last viewer was seen to be gone: the next viewer starts again.
    this.#looking = undefined
  }

  async #pause(pauseMs: number): Promise<void> {
    const wake = (this.#wake = new AbortController())
    await delay(pauseMs, undefined, { signal: wake.signal }).catch(() => undefined)
    this.#wake = undefined
  }

  async #ask(name: QueryName): Promise<void> {
    const rate = this.#rates[name]
    const late = setTimeout(() => this.#reportProblem(name, NO_ANSWER), SLOW_MS)
    try {
      await this.#ping.measure(() => this.#queries.ping())
      rate.started()
      await this.#store(name)
      rate.answered((this.#ping.tookMs * ROUND_TRIPS[name]) / PING_ROUND_TRIPS)
      this.#troubles.delete(name)
    } catch (error) {
      rate.failed()
      this.#reportProblem(name, messageOf(error))
      return
    } finally {
      clearTimeout(late)
    }
    for (const tab of TABS) if (TAB_QUERIES[tab].at(-1) === name && this.#isWatched(tab)) this.#publish(tab)
  }

  async #store(name: QueryName): Promise<void> {
    // What was answered before is no answer any more, should this fail.
    delete this.#answers[name]
    const answer = await this.#queries.ask[name]()
    Object.assign(this.#answers, { [name]: answer })
  }

  /** Sends a tab to all who have not seen it so. */
  #publish(tab: Tab): void {
    const snapshot = this.#make[tab]()
    if (snapshot === undefined) return
    const text = JSON.stringify(snapshot)
    const before = this.#shown.get(tab)
    // The overview is a measurement: one that is like the last one is news, too.
    const version = before?.text === text && tab !== 'overview' ? before.version : ++this.#versions
    const bytes = frame(tab, `{"at":"${new Date().toISOString()}",${text.slice(1)}`)
    this.#shown.set(tab, { version, text, bytes })
    for (const viewer of this.#viewers) {
      if (!viewer.tabs.has(tab)) continue
      if (viewer.troubled || viewer.given.get(tab) !== version) viewer.show(tab, version, bytes)
    }
  }

  #reportProblem(name: QueryName, message: string): void {
    const trouble: DatabaseProblem = { message }
    const bytes = frame('trouble', JSON.stringify(trouble))
    this.#troubles.set(name, bytes)
    for (const viewer of this.#viewers) {
      if ([...viewer.tabs].some((tab) => TAB_QUERIES[tab].includes(name))) viewer.trouble(bytes)
    }
  }
}

const NO_ANSWER = `The database has not answered for ${SLOW_MS / 1000} s.`
