import { setTimeout as sleep } from 'node:timers/promises'
import { outboxParked, outboxUnparked } from '../observe/index.ts'
import type { Lease } from '../leases/index.ts'
import { withConnection } from '../postgres/index.ts'
import { nameOf, type Stream } from '../events/index.ts'
import { backoffMs } from './backoff.ts'
import { deliver, type DeliveryReport, reportDelivered, type StoppedStream } from './deliver.ts'
import { type DeliveryFence, type EventRow, FetchedEvent } from './event.ts'
import { type OwnedShard, parkedDue, parkedTried } from './outbox.sql.ts'
import { resultRows } from './resultRows.ts'
import type { ShardSetting } from './shardSetting.ts'
import { type BatchContext, byStream } from './sink.ts'

/** How much of the parked streams is tried at once. */
const MAX_STREAMS = 50
const MAX_EVENTS = 200
/** An unknown outcome is not counted as an attempt; it is tried again after about this many doublings. */
const UNKNOWN_DOUBLINGS = 2
/** When a stream that is still slow is asked for again: as a part of `slowAfterMs`, at least, and at most. */
const STILL_SLOW = 0.25
const STILL_SLOW_MS = 20
const LONGEST_STILL_SLOW_MS = 1000
/** The time of a slow stream in the last batch before the shard is released: the shard's other streams wait meanwhile. */
const LAST_SLOW_AFTER_MS = 40_000
/** A moment after it is due. */
const AFTER_DUE_MS = 5
const FIRST_FAILURE_MS = 250
const LONGEST_FAILURE_MS = 10_000
/** How long a success proves that the sink accepts events. */
const PROVEN_MS = 60_000

/** What parked streams need of the shard that owns them. */
interface ParkingShard extends DeliveryFence {
  readonly lease: Lease
  readonly batchContext: BatchContext
  readonly identity: OwnedShard
  readonly over: boolean
}

/** `more`, without an event: the stream has further events, which were not read. Neither: it has none. */
type DueRow = Omit<EventRow, 'event_id'> & {
  readonly attempts: string
  readonly event_id: string | null
  readonly more: string | null
}
/** Of a stream that has something to send. */
type FilledRow = DueRow & EventRow

const isFilled = (row: DueRow): row is FilledRow => row.event_id !== null

/**
 * The streams of a shard that wait for another try. They are tried beside the shard's other streams, each in its own order; one that
 * has nothing left goes back to the others between two readings, never in the middle of one.
 */
export class ParkedStreams {
  readonly caughtUp: Stream[] = []
  readonly #setting: ShardSetting
  readonly #shard: ParkingShard
  #trying: Promise<void> | undefined
  /** Streams of which an event may be in progress, given up as slow. */
  readonly #slow = new Set<string>()
  #failures = 0
  #notBefore = 0

  constructor(setting: ShardSetting, shard: ParkingShard) {
    this.#setting = setting
    this.#shard = shard
  }

  get busy(): boolean {
    return this.#trying !== undefined || this.caughtUp.length > 0 || performance.now() < this.#notBefore
  }

  noteSlow(stream: Stream): void {
    this.#slow.add(nameOf(stream))
  }

  /**
   * Comes back when nothing is being tried. Where the shard is left in good order, what is in progress beside is waited for: the next
   * owner would send it again. Not for long, and not where more than fifty other streams are due before it.
   */
  async settled(): Promise<void> {
    await this.#trying
    if (this.#slow.size === 0 || this.#setting.breaker.open || this.#shard.lease.trustedMs <= 0) return
    await this.#awaitSlow().catch(this.#setting.failed)
  }

  async #awaitSlow(): Promise<void> {
    // One that was asked for a moment ago is due after its pause.
    const pauseMs = this.#slowPauseMs(false) + AFTER_DUE_MS
    await sleep(pauseMs, undefined, { signal: this.#shard.lease.signal }).catch(() => undefined)
    const { plan } = this.#setting
    const atMostMs = this.#setting.limit === undefined ? LAST_SLOW_AFTER_MS : this.#setting.limit.msLeft
    const slowAfterMs = Math.max(atMostMs, plan.slowAfterMs === false ? 0 : plan.slowAfterMs)
    const left = new Set(this.#slow)
    while (left.size > 0 && this.#shard.lease.trustedMs > 0) {
      const heads = new Map<string, FilledRow>()
      for (const row of (await this.#due()).filter(isFilled)) {
        if (left.has(nameOf(row)) && !heads.has(nameOf(row))) heads.set(nameOf(row), row)
      }
      if (heads.size === 0) return
      for (const name of heads.keys()) left.delete(name)
      const rows = [...heads.values()]
      const events = rows.map((row) => FetchedEvent.ofRow(row, this.#shard))
      await this.#settle(rows, events, await this.#deliver(events, { ...this.#shard.batchContext, slowAfterMs }))
    }
  }

  /** Comes back when what is being tried has been. */
  async tried(): Promise<void> {
    await this.#trying
  }

  /** Tries those that are due, unless that is being done. */
  retry(): void {
    if (this.busy) return
    this.#trying = this.#try()
      .then(
        () => void (this.#failures = 0),
        (error: unknown) => {
          // What came of it could not be read or written: what was sent is sent again, but not all the time.
          this.#notBefore = performance.now() + backoffMs(this.#failures++, FIRST_FAILURE_MS, LONGEST_FAILURE_MS)
          this.#setting.failed(error)
        },
      )
      .finally(() => {
        this.#trying = undefined
        this.#setting.reader.wake()
      })
  }

  async #try(): Promise<void> {
    const { breaker, limit } = this.#setting
    while (breaker.waitMs === 0) {
      if (limit?.spent === true) return
      const rows = await this.#due()
      if (rows.length === 0 || this.#shard.over) return
      const all = rows.filter(isFilled)
      const filled = limit === undefined ? all : limit.cut(all)
      const events = filled.map((row) => FetchedEvent.ofRow(row, this.#shard))
      const report = events.length === 0 ? undefined : await this.#deliver(events, this.#shard.batchContext)
      if (report !== undefined) await this.#settle(filled, events, report)
      if (filled.length < all.length) return
      this.#caughtUp(rows, events, report)
      if (this.caughtUp.length > 0) return
    }
  }

  /**
   * Tried by themselves, streams that fail say little about the sink: it is not held to be down for their sake. Others that got
   * through not long ago, or the sink's own word, show whose fault it is.
   */
  async #deliver(events: readonly FetchedEvent[], batchContext: BatchContext): Promise<DeliveryReport> {
    const { breaker, context, plan } = this.#setting
    const startedAt = performance.now()
    const report = await deliver(plan.sink, breaker, events, { ...batchContext, beside: true }, startedAt - PROVEN_MS)
    reportDelivered(context.schema, this.#shard, events, report, startedAt)
    this.#setting.limit?.confirmed(report.sent.size)
    if (report.down === undefined) return report
    const healthy = plan.sink.healthy === undefined ? false : await plan.sink.healthy().catch(() => false)
    const stops = report.stops.map((stop) => ({ ...stop, blamed: stop.blamed || (healthy && stop.failed) }))
    return { sent: report.sent, stops, down: undefined }
  }

  async #due(): Promise<DueRow[]> {
    const { context } = this.#setting
    const text = parkedDue(context.quotedSchema, this.#shard.identity, MAX_STREAMS, MAX_EVENTS)
    const results = await withConnection(context.driver, (connection) => connection.script(text), context.silence)
    return resultRows(results) as unknown as DueRow[]
  }

  /** Streams of which everything was sent, or that had nothing. Whether that is so is looked at again when they are taken out. */
  #caughtUp(rows: readonly DueRow[], events: readonly FetchedEvent[], report: DeliveryReport | undefined): void {
    const stopped = new Set(report?.stops.map(({ place }) => nameOf(events[place] as FetchedEvent)))
    for (const row of rows) if (row.more !== null) stopped.add(nameOf(row))
    const streams = new Map(rows.map(({ topic, key }) => [nameOf({ topic, key }), { topic, key }]))
    const { context, plan } = this.#setting
    for (const [name, { topic, key }] of streams) {
      if (stopped.has(name)) continue
      this.caughtUp.push({ topic, key })
      if (outboxUnparked.hasSubscribers) {
        outboxUnparked.publish({ schema: context.schema, dispatcher: plan.name, topic, key })
      }
    }
  }

  async #settle(rows: readonly DueRow[], events: readonly FetchedEvent[], report: DeliveryReport): Promise<void> {
    const { context } = this.#setting
    const outcomes = [...byStream(events).values()].map((places) => {
      const [first] = places
      const { topic, key } = events[first as number] as FetchedEvent
      const sent = places.filter((place) => report.sent.has(place)).map((place) => events[place] as FetchedEvent)
      const went = { topic, key, sent: sent.map(({ id }) => id), sent_up_to: sent.at(-1)?.seq ?? 0 }
      const stop = report.stops.find(({ place }) => places.includes(place))
      if (stop?.slow === true) this.noteSlow({ topic, key })
      else this.#slow.delete(nameOf({ topic, key }))
      if (stop === undefined) return went
      // Attempts are those of the head: with another one at the head they begin again.
      const before = sent.length === 0 ? Number(rows[stop.place]?.attempts ?? 0) : 0
      return { ...went, ...this.#judge(events[stop.place] as FetchedEvent, stop, before, sent.length > 0) }
    })
    const text = parkedTried(context.quotedSchema, this.#shard.identity, JSON.stringify(outcomes))
    await withConnection(context.driver, (connection) => connection.script(text), context.silence)
  }

  /** Until a slow stream is asked for again: at once if it got something through, otherwise its event is in progress for a while. */
  #slowPauseMs(moved: boolean): number {
    const { slowAfterMs } = this.#setting.plan
    if (moved) return 0
    const part = slowAfterMs === false ? 0 : slowAfterMs * STILL_SLOW
    return Math.min(Math.max(STILL_SLOW_MS, part), LONGEST_STILL_SLOW_MS)
  }

  /** What follows from another failure of the event at a stream's head. */
  #judge(event: FetchedEvent, stop: StoppedStream, before: number, moved: boolean): object {
    const { context, plan } = this.#setting
    const { topic, key, seq, id } = event
    const attempts = before + (stop.blamed ? 1 : 0)
    const spent = stop.blamed && attempts >= plan.attempts
    // A tombstone that is refused as well can only be left to an operator.
    const giveUp = spent ? (event.tombstone === undefined ? plan.giveUp(topic) : 'block') : undefined
    const doublings = stop.blamed ? attempts : UNKNOWN_DOUBLINGS + before
    const pauseMs = stop.slow
      ? this.#slowPauseMs(moved)
      : backoffMs(doublings, plan.firstBackoffMs, plan.longestBackoffMs)
    const delayMs = Math.max(stop.retryAfterMs, pauseMs)
    const state = giveUp === 'block' ? 'blocked' : 'parked'
    // That a stream is still slow is no news.
    if (outboxParked.hasSubscribers && !stop.slow) {
      const { schema } = context
      outboxParked.publish({ schema, dispatcher: plan.name, topic, key, seq, attempts, reason: stop.reason, state })
    }
    const wasTombstone = event.tombstone !== undefined
    const failed = { id, seq, reason: stop.reason, attempts, delay_ms: delayMs, state, was_tombstone: wasTombstone }
    if (giveUp === undefined || giveUp === 'block') return failed
    return { ...failed, attempts: 0, delay_ms: 0, give_up: giveUp === 'skip' ? 'skipped' : 'dead' }
  }
}
