import { outboxFailed, outboxParked, outboxUnparked } from '../observe/index.ts'
import { withConnection } from '../postgres/index.ts'
import type { Stream } from '../transactions/index.ts'
import { backoffMs } from './backoff.ts'
import { deliver, type DeliveryReport, type Stop } from './deliver.ts'
import { type EventRow, FetchedEvent } from './event.ts'
import { parkedDue, parkedTried } from './outbox.sql.ts'
import { type Shard, type ShardSetting, tellDelivered } from './shard.ts'
import { rowsIn } from './rowsIn.ts'
import { byStream } from './sink.ts'

/** How much of the parked streams is tried at once. */
const MAX_STREAMS = 50
const MAX_EVENTS = 200
/** A fate that is only unknown counts against nobody; it is tried again after about this many doublings. */
const UNKNOWN_DOUBLINGS = 2
const FIRST_FAILURE_MS = 250
const LONGEST_FAILURE_MS = 10_000
/** For so long a success shows that the sink takes events. */
const PROVEN_MS = 60_000

/** `more`, without an event: the stream has further events, which were not read. Neither: it has none. */
type DueRow = Omit<EventRow, 'event_id'> & {
  readonly attempts: string
  readonly event_id: string | null
  readonly more: string | null
}

/**
 * The streams of a shard that wait for another try. They are tried beside the shard's other streams, each in its own order; one that
 * has nothing left goes back to the others between two readings, never in the middle of one.
 */
export class ParkedStreams {
  readonly caughtUp: Stream[] = []
  readonly #setting: ShardSetting
  readonly #shard: Shard
  #trying: Promise<void> | undefined
  #failures = 0
  #notBefore = 0

  constructor(setting: ShardSetting, shard: Shard) {
    this.#setting = setting
    this.#shard = shard
  }

  get busy(): boolean {
    return this.#trying !== undefined || this.caughtUp.length > 0 || performance.now() < this.#notBefore
  }

  settled(): Promise<void> {
    return this.#trying ?? Promise.resolve()
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
          const { grounds, plan } = this.#setting
          if (outboxFailed.hasSubscribers)
            outboxFailed.publish({ schema: grounds.schema, dispatcher: plan.name, error })
        },
      )
      .finally(() => {
        this.#trying = undefined
        this.#setting.reader.wake()
      })
  }

  async #try(): Promise<void> {
    const { breaker } = this.#setting
    while (breaker.waitMs === 0) {
      const rows = await this.#due()
      if (rows.length === 0 || this.#shard.over) return
      const filled = rows.filter((row): row is DueRow & EventRow => row.event_id !== null)
      const events = filled.map((row) => FetchedEvent.ofRow(row, this.#shard.fence))
      const report = events.length === 0 ? undefined : await this.#deliver(events)
      if (report !== undefined) await this.#settle(filled, events, report)
      this.#caughtUp(rows, events, report)
      if (this.caughtUp.length > 0) return
    }
  }

  /**
   * Tried by themselves, streams that fail say little about the sink: it is not held to be down for their sake. Others that got
   * through not long ago, or the sink's own word, show whose fault it is.
   */
  async #deliver(events: readonly FetchedEvent[]): Promise<DeliveryReport> {
    const { breaker, grounds, plan } = this.#setting
    const startedAt = performance.now()
    const report = await deliver(plan.sink, breaker, events, this.#shard.context, startedAt - PROVEN_MS)
    tellDelivered(grounds.schema, this.#shard, events, report, startedAt)
    if (report.down === undefined) return report
    const healthy = plan.sink.healthy === undefined ? false : await plan.sink.healthy().catch(() => false)
    const stops = report.stops.map((stop) => ({ ...stop, blamed: healthy && stop.failed }))
    return { sent: report.sent, stops, down: undefined }
  }

  async #due(): Promise<DueRow[]> {
    const { grounds, plan } = this.#setting
    const { number, fence } = this.#shard
    const text = parkedDue(grounds.quotedSchema, plan.name, number, fence, MAX_STREAMS, MAX_EVENTS)
    const results = await withConnection(grounds.driver, (connection) => connection.script(text), grounds.silence)
    return rowsIn(results) as unknown as DueRow[]
  }

  /** Streams of which everything was sent, or that had nothing. Whether that is so is looked at again when they are taken out. */
  #caughtUp(rows: readonly DueRow[], events: readonly FetchedEvent[], report: DeliveryReport | undefined): void {
    const stopped = new Set(report?.stops.map(({ place }) => `${events[place]?.topic}\0${events[place]?.key}`))
    for (const { topic, key, more } of rows) if (more !== null) stopped.add(`${topic}\0${key}`)
    const streams = new Map(rows.map(({ topic, key }) => [`${topic}\0${key}`, { topic, key }]))
    const { grounds, plan } = this.#setting
    for (const [name, { topic, key }] of streams) {
      if (stopped.has(name)) continue
      this.caughtUp.push({ topic, key })
      if (outboxUnparked.hasSubscribers) {
        outboxUnparked.publish({ schema: grounds.schema, dispatcher: plan.name, topic, key })
      }
    }
  }

  async #settle(rows: readonly DueRow[], events: readonly FetchedEvent[], report: DeliveryReport): Promise<void> {
    const { grounds, plan } = this.#setting
    const outcomes = [...byStream(events).values()].map((places) => {
      const [first] = places
      const { topic, key } = events[first as number] as FetchedEvent
      const lastSent = places.findLast((place) => report.sent.has(place))
      const sentUpTo = lastSent === undefined ? 0 : (events[lastSent] as FetchedEvent).seq
      const stop = report.stops.find(({ place }) => places.includes(place))
      if (stop === undefined) return { topic, key, sent_up_to: sentUpTo }
      // Attempts are those of the head: with another one at the head they begin anew.
      const before = sentUpTo === 0 ? Number(rows[stop.place]?.attempts ?? 0) : 0
      return { topic, key, sent_up_to: sentUpTo, ...this.#judge(events[stop.place] as FetchedEvent, stop, before) }
    })
    const { number, fence } = this.#shard
    const text = parkedTried(grounds.quotedSchema, plan.name, number, fence, JSON.stringify(outcomes))
    await withConnection(grounds.driver, (connection) => connection.script(text), grounds.silence)
  }

  /** What follows from another failure of the event at a stream's head. */
  #judge(event: FetchedEvent, stop: Stop, before: number): object {
    const { grounds, plan } = this.#setting
    const { topic, key, seq } = event
    const attempts = before + (stop.blamed ? 1 : 0)
    const spent = stop.blamed && attempts >= plan.attempts
    // A tombstone that is refused as well can only be left to an operator.
    const giveUp = spent ? (event.tombstone === undefined ? plan.giveUp(topic) : 'block') : undefined
    const doublings = stop.blamed ? attempts : UNKNOWN_DOUBLINGS + before
    const delayMs = Math.max(stop.retryAfterMs, backoffMs(doublings, plan.firstBackoffMs, plan.longestBackoffMs))
    const state = giveUp === 'block' ? 'blocked' : 'parked'
    if (outboxParked.hasSubscribers) {
      const { schema } = grounds
      outboxParked.publish({ schema, dispatcher: plan.name, topic, key, seq, attempts, reason: stop.reason, state })
    }
    const wasTombstone = event.tombstone !== undefined
    const failed = { seq, reason: stop.reason, attempts, delay_ms: delayMs, state, was_tombstone: wasTombstone }
    if (giveUp === undefined || giveUp === 'block') return failed
    return { ...failed, attempts: 0, delay_ms: 0, give_up: giveUp === 'skip' ? 'skipped' : 'dead' }
  }
}
