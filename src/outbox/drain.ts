import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { LeaseHeldError } from '../errors.ts'
import type { Lease, Leases } from '../leases/index.ts'
import { onAbort, withConnection } from '../postgres/index.ts'
import { checkNumber } from './checkNumber.ts'
import type { DrainLimit } from './drainLimit.ts'
import { shardsToDrain } from './outbox.sql.ts'
import { OwnedShards, shareOf } from './ownedShards.ts'
import { resultRows } from './resultRows.ts'
import { retain } from './retain.ts'
import type { ShardSetting } from './shardSetting.ts'
import { heldOf, shardsOf } from './status.ts'

/** What `dispatcher.drain()` takes. */
export interface DrainOptions {
  /** After this time it begins no further batch. Default 60,000. */
  readonly maxMs?: number
  /** The maximum number of events that it reads. Default: all. */
  readonly maxEvents?: number
  /** Ends it earlier: it finishes its current batches, moves its cursors and releases its shards. */
  readonly signal?: AbortSignal
}

const DRAIN_OPTIONS: OptionNames<DrainOptions> = { maxMs: true, maxEvents: true, signal: true }
const DEFAULT_MAX_MS = 60_000
const DAY_MS = 24 * 60 * 60 * 1000

/**
 * Why a drain has ended. `empty`: there was nothing more to deliver. `held`: the rest is in shards that other processes hold. `maxMs`,
 * `maxEvents`: a limit was reached. `sinkDown`: the sink took nothing. `stopped`: by the signal, or because the Lockstep was closed.
 */
export type DrainEnding = 'empty' | 'held' | 'maxMs' | 'maxEvents' | 'sinkDown' | 'stopped'

/** What is not delivered, in all shards of the dispatcher, whichever process holds them. */
export interface LeftToDeliver {
  /** Events that were committed and are not delivered; those of parked streams are not among them. */
  readonly events: number
  /** Whether `events` is an estimate: few are counted. */
  readonly estimated: boolean
  /** Streams that wait for another try, or for an operator. */
  readonly parkedStreams: number
  /** Streams that are held until a time: see `notBefore`. */
  readonly heldStreams: number
  /** When the next of them is due. */
  readonly nextHeldAt: Date | undefined
  /** Shards that other processes hold. */
  readonly heldShards: number
}

/** What `dispatcher.drain()` did. */
export interface Drained {
  /** Events that the sink has confirmed. */
  readonly delivered: number
  readonly ended: DrainEnding
  readonly left: LeftToDeliver
}

/** The checked options. */
export interface DrainPlan {
  readonly maxMs: number
  readonly maxEvents: number
  readonly signal: AbortSignal | undefined
}

export function planDrain(options: DrainOptions): DrainPlan {
  checkOptions('dispatcher.drain()', options, DRAIN_OPTIONS)
  const { maxMs = DEFAULT_MAX_MS, maxEvents, signal } = options
  return {
    maxMs: checkNumber('maxMs', maxMs, 1, DAY_MS),
    maxEvents: maxEvents === undefined ? Infinity : checkNumber('maxEvents', maxEvents, 1, 1_000_000_000),
    signal,
  }
}

/** How many drains of a name share its shards; more find nothing to do. It is fixed, because all must ask for the same number of permits. */
const SEATS = 64
/** How often a drain looks who else drains, and gives up what is above its share. */
const SHARE_MS = 250
/** How long a drain with less than its share waits for those that have more. */
const WAIT_FOR_SHARE_MS = 4 * SHARE_MS
/** How often it can return to a shard without reading an event anywhere: the shard cannot be read, or its streams cannot be tried. */
const FRUITLESS = 5
const FRUITLESS_PAUSE_MS = 50
/** How long looking after old segments may take at the end. */
const RETAIN_WITHIN_MS = 1000

/** What the shards of a drain share. */
export interface DrainSetting extends ShardSetting {
  readonly limit: DrainLimit
  /** Aborted, with the ending, where it is to stop. */
  readonly stopping: AbortSignal
  /** The last failure that was reported. */
  readonly failure: () => unknown
}

/** Who holds what of a dispatcher, by key. */
type Held = Awaited<ReturnType<OwnedShards['held']>>

/**
 * Delivers what is there with the shards that are free, and releases them. Drains share shards by seats, which are permits of one lease:
 * one that has more than its share gives up the rest between two batches. A dispatcher that runs does not give up any for their sake.
 */
export class Drain {
  readonly #leases: Leases
  readonly #setting: DrainSetting
  readonly #owned: OwnedShards
  /** Shards that have ended, and how many events were read when they did. */
  readonly #visited = new Map<number, number>()
  #fruitless = 0
  #wake: () => void = () => undefined
  /** Whether the last shard has ended since it was last looked at. */
  #ended = false

  constructor(leases: Leases, setting: DrainSetting) {
    this.#leases = leases
    this.#setting = setting
    this.#owned = new OwnedShards(leases, setting, ({ number }) => this.#left(number))
  }

  async run(): Promise<Drained> {
    const before = await this.#owned.held()
    const seat = await this.#takeSeat(before)
    let ended: DrainEnding = 'held'
    try {
      if (seat !== undefined) ended = await this.#deliver(seat)
    } finally {
      await this.#owned.leave()
      await seat?.release()
    }
    this.#owned.refused.throwIfAborted()
    const left = await this.#leftToDeliver(seat === undefined ? before : await this.#owned.held())
    const empty = left.events === 0 && (ended === 'held' || ended === 'maxEvents')
    return { delivered: this.#setting.limit.delivered, ended: empty ? 'empty' : ended, left }
  }

  /** Undefined where there are as many drains as shards. */
  async #takeSeat(held: Held): Promise<Lease | undefined> {
    const { name, shards } = this.#setting.plan
    const key = `Outbox:${name}:drain:seats` as const
    if ((held.get(key)?.length ?? 0) >= shards) return undefined
    return this.#leases
      .acquireAlways(key, { ...this.#owned.leaseOptions(), permits: SEATS })
      .catch((error: unknown) => {
        if (error instanceof LeaseHeldError) return undefined
        throw error
      })
  }

  async #deliver(seat: Lease): Promise<DrainEnding> {
    const { plan, failure } = this.#setting
    const waitUntil = performance.now() + WAIT_FOR_SHARE_MS
    for (;;) {
      const ending = this.#ending()
      if (ending !== undefined) return ending
      this.#ended = false
      const todo = await this.#todo()
      const held = await this.#owned.held()
      const drains = held.get(seat.key) ?? []
      const place = drains.findIndex(({ fence }) => fence === seat.fence)
      const share = shareOf(plan.shards, place, drains.length)
      this.#owned.shrinkTo(share)
      const free = todo.filter((shard) => !held.has(this.#owned.keyOf(shard)))
      // Not all begin with the same one.
      const start = Math.floor(Math.random() * free.length)
      await this.#owned.take([...free.slice(start), ...free.slice(0, start)], share, {
        stopping: this.#setting.stopping,
      })
      if (this.#owned.running.size === 0) {
        if (todo.length === 0) {
          await this.#lookAfterSegments(drains[place]?.slot)
          return 'empty'
        }
        if (share === 0 || this.#somebodyRuns(held) || performance.now() >= waitUntil) return 'held'
      }
      await this.#pause(SHARE_MS)
      if (this.#fruitless >= FRUITLESS) {
        const error = failure()
        if (error instanceof Error) throw error
        return 'held'
      }
      if (this.#fruitless > 0) await this.#pause(FRUITLESS_PAUSE_MS * 2 ** this.#fruitless)
    }
  }

  #ending(): DrainEnding | undefined {
    const { stopping, limit, breaker } = this.#setting
    if (stopping.aborted) return stopping.reason as DrainEnding
    if (this.#owned.refused.aborted) return 'stopped'
    if (limit.spent) return 'maxEvents'
    return breaker.open ? 'sinkDown' : undefined
  }

  /** Dispatchers that run keep their shards. */
  #somebodyRuns(held: Held): boolean {
    return [...held.keys()].some((key) => key.startsWith(`Outbox:${this.#setting.plan.name}:member:`))
  }

  #left(shard: number): void {
    const { read } = this.#setting.limit
    if (this.#visited.get(shard) === read) this.#fruitless++
    else this.#fruitless = 0
    this.#visited.set(shard, read)
    this.#ended = this.#owned.running.size === 0
    if (this.#ended) this.#wake()
  }

  /** Waits until the last shard has ended or it should stop, up to this time. */
  #pause(ms: number): Promise<void> {
    if (this.#setting.stopping.aborted || (this.#ended && this.#fruitless === 0)) return Promise.resolve()
    return new Promise((resolve) => {
      const end = (): void => {
        clearTimeout(timer)
        forget()
        this.#wake = () => undefined
        resolve()
      }
      const timer = setTimeout(end, ms)
      const forget = onAbort(this.#setting.stopping, end)
      this.#wake = end
    })
  }

  async #todo(): Promise<number[]> {
    const { context, plan } = this.#setting
    const text = shardsToDrain(context.quotedSchema, plan.name, plan.shards)
    const rows = resultRows(
      await withConnection(context.driver, (connection) => connection.script(text), context.silence),
    )
    return JSON.parse(rows[0]?.['todo'] ?? '[]') as number[]
  }

  /** One of several does it. */
  async #lookAfterSegments(slot: number | undefined): Promise<void> {
    const { context, plan, limit } = this.#setting
    if (plan.retainMs === false || slot !== 0 || limit.msLeft === 0) return
    await retain(context, 'as registered', Math.min(RETAIN_WITHIN_MS, limit.msLeft))
  }

  async #leftToDeliver(held: Held): Promise<LeftToDeliver> {
    const { context, plan } = this.#setting
    const mine = (await shardsOf(context)).filter(({ dispatcher }) => dispatcher === plan.name)
    const waiting = [...(await heldOf(context)).values()].filter(({ dispatcher }) => dispatcher === plan.name)
    return {
      events: mine.reduce((sum, { lag_events: events }) => sum + Number(events), 0),
      estimated: mine.some(({ lag_exact: exact }) => exact !== 'true'),
      parkedStreams: mine.reduce((sum, { parked }) => sum + Number(parked), 0),
      heldStreams: waiting.reduce((sum, { streams }) => sum + streams, 0),
      nextHeldAt: waiting.map(({ nextAt }) => nextAt).toSorted((one, other) => one.getTime() - other.getTime())[0],
      heldShards: mine.filter(({ shard }) => held.has(this.#owned.keyOf(Number(shard)))).length,
    }
  }
}
