import { setTimeout as sleep } from 'node:timers/promises'
import type { Lease } from '../leases/index.ts'
import { outboxParked } from '../observe/index.ts'
import { withConnection } from '../postgres/index.ts'
import { backoffMs } from './backoff.ts'
import { deliver, type DeliveryReport, reportDelivered, type StoppedStream } from './deliver.ts'
import { cursorsOfAnotherServer, dispatcherRemoved } from './cursorErrors.ts'
import type { DrainLimit } from './drainLimit.ts'
import type { FetchedEvent, OutboxEvent } from './event.ts'
import { type Advance, type OwnedShard, takeShard } from './outbox.sql.ts'
import type { Stream } from '../events/index.ts'
import type { Generations } from './generations.ts'
import { ParkedStreams } from './parkedStreams.ts'
import { resultRows } from './resultRows.ts'
import type { ReadingShard, Window } from './reader.ts'
import type { ShardSetting } from './shardSetting.ts'
import { type BatchContext, byStream } from './sink.ts'
import { ShardsChanged } from './shardsChanged.ts'
import { TopicsChanged } from './topics.ts'

/** A cursor that has moved without anything to deliver is written this often, so that old segments can go. */
const REFRESH_MS = 20_000
const LOOK_AGAIN_MS = 500

/** A history, and the generations of events in it. */
export interface History {
  readonly history: string
  readonly generations: Generations
}

/** One shard while this process owns it: reads, sends, and moves its cursor, until the lease is lost or it is stopped. */
export class Shard implements ReadingShard {
  readonly number: number
  readonly lease: Lease
  /** In which the lease was granted. In another one the shard is lost, and has to be taken again with a new fence. */
  readonly history: string
  readonly generations: Generations
  readonly #setting: ShardSetting
  readonly #parked: ParkedStreams
  readonly #stopping = new AbortController()
  /** One for all pauses: each `AbortSignal.any` would stay with the lease's signal. */
  readonly #ending: AbortSignal
  /** What of the current window was sent already, by position: it is read again after a pause of the sink. */
  #sent = new Set<number>()
  #refreshAt = performance.now() + REFRESH_MS
  /** In a drain: whether there was nothing more to deliver. */
  #emptied = false
  readonly ended: Promise<void>

  constructor(setting: ShardSetting, number: number, lease: Lease, { history, generations }: History) {
    this.#setting = setting
    this.number = number
    this.lease = lease
    this.history = history
    this.generations = generations
    this.#ending = AbortSignal.any([this.#stopping.signal, lease.signal])
    this.#parked = new ParkedStreams(setting, this)
    this.ended = this.#ownAndRun()
  }

  get fence(): bigint {
    return this.lease.fence
  }

  get batchContext(): BatchContext {
    const { lease } = this
    const owned = (): boolean => lease.trustedMs > 0
    const { slowAfterMs } = this.#setting.plan
    return { ...this.identity, signal: lease.signal, owned, ...(slowAfterMs === false ? {} : { slowAfterMs }) }
  }

  /** As whom it speaks to the database. */
  get identity(): OwnedShard {
    const { number: shard, fence, history } = this
    return { dispatcher: this.#setting.plan.name, shard, fence, history }
  }

  get emptied(): boolean {
    return this.#emptied
  }

  /** Finishes its current batch, moves its cursor and ends. */
  stop(): void {
    this.#stopping.abort()
    this.#setting.reader.hurry(this)
  }

  /** Streams that have caught up: from the next reading on they are like any other. */
  get caughtUp(): Stream[] {
    return this.#parked.caughtUp
  }

  /** Whether a stream that is due would be tried at once. */
  get heedsParked(): boolean {
    return !this.#parked.busy
  }

  /** Whether it is to stop, or has lost its lease; also if its clocks have not reported it yet. */
  get over(): boolean {
    return this.#over || this.lease.trustedMs <= 0
  }

  get #over(): boolean {
    return this.#stopping.signal.aborted || this.lease.signal.aborted
  }

  async #ownAndRun(): Promise<void> {
    try {
      await this.#run()
    } finally {
      await this.#parked.settled()
      await this.lease.release()
    }
  }

  async #run(): Promise<void> {
    const { context, plan, reader } = this.#setting
    const taking = takeShard(context.quotedSchema, this.identity, plan)
    const answers = await withConnection(context.driver, (connection) => connection.script(taking), context.silence)
    const taken = resultRows(answers)[0]?.['taken']
    if (taken === 'elsewhere') throw cursorsOfAnotherServer(plan.name)
    if (taken === 'removed') throw dispatcherRemoved(plan.name)
    if (taken === 'topics') throw new TopicsChanged()
    if (taken === 'shards') throw new ShardsChanged()
    if (taken !== 'taken') return
    if (this.#setting.limit !== undefined) return this.#drain(this.#setting.limit)
    let advance: Advance | undefined
    while (!this.lease.signal.aborted) {
      if (this.#over && advance === undefined) break
      await this.#waitForSink()
      // Who stops only wants its cursor moved: it does not wait for more.
      const window = await reader.next(this, advance, this.#over ? 0 : REFRESH_MS)
      if (window === 'lost' || this.#over) break
      if (window.parkedDueMs !== undefined && window.parkedDueMs <= 0) this.#parked.retry()
      advance = window.events.length > 0 ? await this.#deliver(window) : this.#refresh(window)
    }
  }

  /** Delivers until there is nothing more, the limit is reached, or the sink is down. */
  async #drain(limit: DrainLimit): Promise<void> {
    const { breaker, reader } = this.#setting
    // Whether the cursor records that its window is done. Otherwise the shard would count as one with work to do.
    let done = false
    let advance: Advance | undefined
    for (;;) {
      if (this.lease.signal.aborted || (advance === undefined && (this.#over || breaker.open || limit.spent))) return
      const read = await reader.next(this, advance, 0)
      advance = undefined
      if (read === 'lost' || this.#over || breaker.open) return
      const { parkedDueMs } = read
      if (parkedDueMs !== undefined && parkedDueMs <= 0 && !this.#parked.busy) {
        this.#parked.retry()
        await this.#parked.tried()
      }
      // What is caught up is taken out with the next reading; the next reader tries a read that failed again.
      if (read.events.length === 0 && done && !read.stale && this.caughtUp.length === 0) {
        this.#emptied = true
        return
      }
      if (read.events.length > 0) {
        const events = limit.cut(read.events)
        if (events.length === 0) return
        const window = events.length === read.events.length ? read : { ...read, events, whole: false }
        advance = await this.#deliver(window)
        done = advance?.done === true
      } else if (!done || read.stale) {
        advance = this.#advanceTo(read, 0, true, undefined)
        done = true
      }
    }
  }

  /** While nothing gets through, nothing is read. */
  async #waitForSink(): Promise<void> {
    const { breaker, plan } = this.#setting
    while (breaker.open && !this.#over) {
      if (breaker.waitMs > 0) {
        // Not all of it at once: what another shard gets through ends it.
        await sleep(Math.min(breaker.waitMs, LOOK_AGAIN_MS), undefined, { signal: this.#ending }).catch(() => undefined)
      } else if (plan.sink.healthy === undefined || (await plan.sink.healthy().catch(() => false))) return
      else breaker.failed('it says that it is not healthy')
    }
  }

  #refresh(window: Window): Advance | undefined {
    if (performance.now() < this.#refreshAt && !window.stale) return undefined
    return this.#advanceTo(window, 0, true, undefined)
  }

  #advanceTo(window: Window, afterId: number, done: boolean, waiting: string | undefined): Advance {
    this.#refreshAt = performance.now() + REFRESH_MS
    // What was sent of a window that is read in other pieces now stays so.
    for (const position of this.#sent) if (done || position <= afterId) this.#sent.delete(position)
    const { version, life, prev, next, seenId } = window
    return { version, life, prev, next, afterId, done, seenId, waiting }
  }

  /** Sends what is in the window. The answer is where the cursor is to go; undefined: nowhere, the sink is down. */
  async #deliver(window: Window): Promise<Advance | undefined> {
    const { breaker, plan, context } = this.#setting
    // A process that was stopped may come here long after its lease has gone.
    if (this.lease.trustedMs <= 0) return undefined
    const batch = this.#toSend(window)
    const startedAt = performance.now()
    const report: DeliveryReport =
      batch.length === 0 ? NOTHING_TO_SEND : await deliver(plan.sink, breaker, batch, this.batchContext)
    reportDelivered(context.schema, this, batch, report, startedAt)
    this.#setting.limit?.confirmed(report.sent.size)
    if (report.down !== undefined || this.lease.signal.aborted) {
      for (const place of report.sent) this.#sent.add((batch[place] as OutboxEvent).position)
      // What was not sent because the shard was lost says nothing about the sink.
      if (report.down !== undefined && !this.lease.signal.aborted)
        breaker.failed(report.down.reason, report.down.retryAfterMs)
      return undefined
    }
    const waiting = this.#putAside(window, batch, report)
    const last = window.events.at(-1) as OutboxEvent
    return this.#advanceTo(window, last.position, window.whole, waiting)
  }

  /** The events of streams that do not wait, without those that were sent before a pause of the sink. */
  #toSend({ events, waiting }: Window): readonly FetchedEvent[] {
    if (waiting.size === 0 && this.#sent.size === 0) return events
    return events.filter((event, place) => !waiting.has(place) && !this.#sent.has(event.position))
  }

  /** The events that are not sent now: of streams that wait already, and of those that were stopped just now. */
  #putAside(window: Window, batch: readonly OutboxEvent[], report: DeliveryReport): string | undefined {
    if (window.waiting.size === 0 && report.stops.length === 0) return undefined
    const { plan, context } = this.#setting
    const stopped = new Map<string, StoppedStream>()
    for (const stop of report.stops) {
      const event = batch[stop.place] as OutboxEvent
      stopped.set(`${event.topic}\0${event.key}`, stop)
      if (stop.slow) this.#parked.noteSlow(event)
      if (outboxParked.hasSubscribers) {
        const { topic, key, seq } = event
        const { schema } = context
        outboxParked.publish({
          schema,
          dispatcher: plan.name,
          topic,
          key,
          seq,
          attempts: stop.blamed ? 1 : 0,
          reason: stop.reason,
          state: 'parked',
        })
      }
    }
    const sent = new Set(batch.filter((_, place) => report.sent.has(place)))
    const aside = window.events.filter((event) => !sent.has(event) && !this.#sent.has(event.position))
    const list = [...byStream(aside).values()].map((places) => {
      const events = places.map((place) => aside[place] as OutboxEvent)
      const { topic, key } = events[0] as OutboxEvent
      const stop = stopped.get(`${topic}\0${key}`)
      const seqs = events.map(({ seq }) => seq)
      if (stop === undefined) return { topic, key, seqs }
      const attempts = stop.blamed ? 1 : 0
      const backoff = stop.slow ? 0 : backoffMs(0, plan.firstBackoffMs, plan.longestBackoffMs)
      const delayMs = Math.max(stop.retryAfterMs, backoff)
      return { topic, key, seqs, state: 'parked', attempts, reason: stop.reason, delay_ms: delayMs }
    })
    return list.length === 0 ? undefined : JSON.stringify(list)
  }
}

const NOTHING_TO_SEND: DeliveryReport = { sent: new Set(), stops: [], down: undefined }
