import { checkOptions, type OptionNames } from '../checkOptions.ts'
import type { OutboxEvent } from './event.ts'
import { type BatchContext, byStream, type Delivery, EventRefusedError } from './sink.ts'
import { StreamLimit } from './streamLimit.ts'

/** What `new ConcurrentStreams()` takes. */
export interface ConcurrentStreamsOptions {
  /**
   * How many events of one call of `send()` are in progress at once, each of another stream. A dispatcher calls it for each of its shards.
   */
  readonly concurrency: number
  /** The same for all calls together. Slow events that continue separately do not count. Default: no limit. */
  readonly processConcurrency?: number
  /**
   * Whether every stream has its own receiver. If all share one, three slow streams while nothing gets through mean that the receiver is
   * down: their events are then unknown instead of slow. Default false.
   */
  readonly ownReceivers?: boolean
  /** How many slow events can be in progress separately. Beyond that, batches wait for their events. Default eight times `concurrency`. */
  readonly mostSlow?: number
}

const CONCURRENT_STREAMS_OPTIONS: OptionNames<ConcurrentStreamsOptions> = {
  concurrency: true,
  processConcurrency: true,
  ownReceivers: true,
  mostSlow: true,
}

/**
 * Sends one event. `late` is aborted when the stream's time in this batch is over: what has not begun by then answers `slow`, what is
 * in progress continues.
 */
export type SendOne = (event: OutboxEvent, late: AbortSignal | undefined) => Promise<Delivery>

/** The part of a batch's context that counts here. */
type SendContext = Pick<BatchContext, 'dispatcher' | 'signal' | 'owned' | 'slowAfterMs' | 'beside'>

/** An event whose stream was given up as slow while it was in progress. */
interface Pending {
  /** Whose event it is. The answer counts for this dispatcher only, because a replay sends events that a dispatcher has sent before. */
  readonly dispatcher: string
  readonly id: string
  readonly isTombstone: boolean
  readonly outcome: Promise<Delivery>
  /** By `performance.now()`. */
  answeredAt: number | undefined
}

const LATE = Symbol('late')
const HELD: Delivery = { unknown: 'an earlier event of its stream was not sent' }
/** Beside the others a stream has less time in a batch: what is in progress is asked for again soon, and other streams wait there, too. */
const BESIDE = 0.25
/** How long a slow stream is parked at once. */
const SLOW_FOR_MS = 60_000
/** A stream that got more than this through in its time has many events, and is not slow. */
const QUICK_EVENTS = 10
/** If nothing succeeds for this time and this many streams are slow, the receiver that they share is down. */
const SILENT_FOR_MS = 10_000
const SILENT_STREAMS = 3
/** An answer that no batch asks for is dropped after this time: another process owns its shard by then. */
const ANSWER_KEPT_MS = 5 * 60_000
/** What is remembered of slow streams, at most. */
const MAX_REMEMBERED = 10_000
const SLOW_PER_PLACE = 8

/**
 * Sends the streams of a batch in parallel, the events of a stream one after the other, and none after the first that was not sent.
 *
 * **Slow streams.** A shard waits for its batch, so one slow receiver could delay all streams of the shard. Each stream has
 * `context.slowAfterMs` in a batch. After that its event stays in progress, the answer is `slow`, and the dispatcher parks the
 * stream. When the same event comes again, in a batch of parked streams, it is not sent a second time: its answer is that
 * of the call in progress. For a minute, further events of a slow stream are parked without a try.
 *
 * **The limit of the process.** Calls for several shards share `processConcurrency`. A stream takes its place before its time in the batch begins, so
 * waiting for others does not make it slow, and releases it with its last answer in the batch. A call whose shard is lost stops waiting.
 *
 * States of a stream: idle; in progress in a batch; in progress outside of a batch (given up as slow, not answered); answered outside of a
 * batch (until it is asked for). At most one of its events is in progress. If the process ends meanwhile, that event is sent again.
 *
 * @example
 * const streams = new ConcurrentStreams({ concurrency: 16 })
 * const sink: Sink = {
 *   name: 'mine',
 *   send: (events, context) => streams.send(events, context, async (event) => publish(event)),
 *   close: () => streams.settled(),
 * }
 */
export class ConcurrentStreams {
  readonly #concurrency: number
  readonly #limit: StreamLimit
  readonly #ownReceivers: boolean
  readonly #mostSlow: number
  /** By stream: what is in progress beside, or was answered there. */
  readonly #pending = new Map<string, Pending>()
  /** Until when a stream is parked at once, by `performance.now()`. */
  readonly #slowUntil = new Map<string, number>()
  readonly #underWay = new Set<Promise<unknown>>()
  /** How many are in progress beside. */
  #beside = 0
  /** When each event began that is not answered; the oldest first. */
  readonly #unanswered = new Map<object, number>()
  #lastSent = performance.now()

  constructor(options: ConcurrentStreamsOptions) {
    checkOptions('new ConcurrentStreams()', options, CONCURRENT_STREAMS_OPTIONS)
    const { concurrency, processConcurrency = Infinity, ownReceivers = false } = options
    const { mostSlow = SLOW_PER_PLACE * Math.min(concurrency, processConcurrency) } = options
    this.#concurrency = concurrency
    this.#limit = new StreamLimit(processConcurrency)
    this.#ownReceivers = ownReceivers
    this.#mostSlow = mostSlow
  }

  /**
   * One answer for each event, in their order. What `sendOne` throws counts against its event alone: `EventRefusedError` is a refusal, all
   * else a failure. What has not begun when the shard is lost is left alone.
   */
  async send(events: readonly OutboxEvent[], context: SendContext, sendOne: SendOne): Promise<Delivery[]> {
    const answers: Delivery[] = events.map(() => HELD)
    const all = byStream(events)
    const streams = all.entries()
    const work = async (): Promise<void> => {
      for (const [name, places] of streams) {
        // Before its time begins: a stream that waits for the others is not slow. A shard that is lost waits for nothing.
        const free = this.#limit.take(context.signal)
        if (free === false || (free !== true && !(await free))) return
        try {
          await this.#sendStream(name, places, events, context, sendOne, answers)
        } finally {
          this.#limit.release()
        }
      }
    }
    await this.#track(Promise.all(Array.from({ length: Math.min(this.#concurrency, all.size) }, work)))
    if (!this.#ownReceivers) this.#readSilence(all, answers)
    return answers
  }

  /** Comes back when nothing is in progress. */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.all(this.#underWay)
  }

  async #sendStream(
    name: string,
    places: readonly number[],
    events: readonly OutboxEvent[],
    context: SendContext,
    sendOne: SendOne,
    answers: Delivery[],
  ): Promise<void> {
    const { dispatcher, signal, owned, slowAfterMs, beside = false } = context
    const first = events[places[0] as number] as OutboxEvent
    if (slowAfterMs !== undefined && !beside && this.#isSlow(name) && !this.#isAnswered(name, dispatcher, first)) {
      answers[places[0] as number] = { slow: 'it was slow a short time ago' }
      return
    }
    const turnMs = slowAfterMs === undefined ? undefined : beside ? slowAfterMs * BESIDE : slowAfterMs
    const turn = turnMs === undefined ? undefined : new Turn(turnMs)
    try {
      let count = 0
      for (const place of places) {
        if (signal.aborted || owned?.() === false) return
        const event = events[place] as OutboxEvent
        const answer = turn?.isOver === true ? LATE : await this.#sendInTurn(name, dispatcher, event, turn, sendOne)
        if (answer === 'sent') {
          count++
          answers[place] = 'sent'
          continue
        }
        if (answer === LATE && count < QUICK_EVENTS) this.#noteSlow(name)
        answers[place] = answer === LATE ? { slow: `it took more than ${turnMs} ms (slowAfterMs)` } : answer
        return
      }
    } finally {
      turn?.end()
    }
  }

  /** The answer; LATE where it did not come in the stream's time. */
  async #sendInTurn(
    name: string,
    dispatcher: string,
    event: OutboxEvent,
    turn: Turn | undefined,
    sendOne: SendOne,
  ): Promise<Delivery | typeof LATE> {
    const pending = this.#pendingOf(name)
    if (pending !== undefined) {
      const answer = turn === undefined ? await pending.outcome : await turn.wait(pending.outcome)
      if (answer === LATE) return LATE
      if (pending.dispatcher === dispatcher) this.#pending.delete(name)
      if (isOf(pending, dispatcher, event)) return answer
    }
    const outcome = this.#begin(event, sendOne, turn?.late)
    if (turn === undefined) return outcome
    const answer = await turn.wait(outcome)
    if (answer !== LATE || this.#beside >= this.#mostSlow) return outcome
    this.#beside++
    const isTombstone = event.tombstone !== undefined
    const left: Pending = { dispatcher, id: event.id, isTombstone, outcome, answeredAt: undefined }
    void this.#track(outcome).then(() => {
      this.#beside--
      left.answeredAt = performance.now()
    })
    this.#pending.delete(name)
    this.#pending.set(name, left)
    if (this.#pending.size > MAX_REMEMBERED) forgetOldest(this.#pending)
    return LATE
  }

  async #begin(event: OutboxEvent, sendOne: SendOne, late: AbortSignal | undefined): Promise<Delivery> {
    const mark = {}
    this.#unanswered.set(mark, performance.now())
    const answer = await guarded(event, sendOne, late)
    this.#unanswered.delete(mark)
    if (answer === 'sent') this.#lastSent = performance.now()
    return answer
  }

  /** Whether there is an answer for this event, which only has to be asked for. */
  #isAnswered(name: string, dispatcher: string, event: OutboxEvent): boolean {
    const pending = this.#pendingOf(name)
    return pending?.answeredAt !== undefined && isOf(pending, dispatcher, event)
  }

  /** What is in progress of a stream, or was answered not long ago. */
  #pendingOf(name: string): Pending | undefined {
    const pending = this.#pending.get(name)
    if (pending?.answeredAt === undefined || performance.now() - pending.answeredAt < ANSWER_KEPT_MS) return pending
    this.#pending.delete(name)
    return undefined
  }

  /**
   * Where one receiver has all streams, and takes nothing of any: it is down, and not slow. A time in which there was nothing to take is
   * no silence.
   */
  #readSilence(streams: ReadonlyMap<string, readonly number[]>, answers: Delivery[]): void {
    const [oldest] = this.#unanswered.values()
    if (oldest === undefined || answers.includes('sent')) return
    const silentMs = performance.now() - Math.max(oldest, this.#lastSent)
    const slow = [...streams].filter(([, places]) => places.some((place) => isSlow(answers[place])))
    if (slow.length < SILENT_STREAMS || silentMs < SILENT_FOR_MS) return
    const unknown = `nothing was answered for ${Math.round(silentMs / 1000)} s`
    for (const [name, places] of slow) {
      // Its stream is not parked: it has to be tried in its place.
      this.#slowUntil.delete(name)
      for (const place of places) if (isSlow(answers[place])) answers[place] = { unknown }
    }
  }

  #isSlow(name: string): boolean {
    const until = this.#slowUntil.get(name)
    if (until === undefined) return false
    if (until > performance.now()) return true
    this.#slowUntil.delete(name)
    return false
  }

  #noteSlow(name: string): void {
    this.#slowUntil.delete(name)
    this.#slowUntil.set(name, performance.now() + SLOW_FOR_MS)
    if (this.#slowUntil.size > MAX_REMEMBERED) forgetOldest(this.#slowUntil)
  }

  async #track<T>(work: Promise<T>): Promise<T> {
    this.#underWay.add(work)
    try {
      return await work
    } finally {
      this.#underWay.delete(work)
    }
  }
}

/** The time of one stream in one batch. */
class Turn {
  readonly #over = new AbortController()
  readonly #timer: NodeJS.Timeout
  #giveUp: (() => void) | undefined

  constructor(ms: number) {
    this.#timer = setTimeout(() => {
      this.#over.abort()
      // An event that has not begun says so first: it is not in progress.
      setImmediate(() => this.#giveUp?.())
    }, ms)
  }

  get isOver(): boolean {
    return this.#over.signal.aborted
  }

  get late(): AbortSignal {
    return this.#over.signal
  }

  /** What comes of the work; LATE where that is not known when the time is over. */
  wait<T>(work: Promise<T>): Promise<T | typeof LATE> {
    return new Promise((resolve) => {
      this.#giveUp = () => resolve(LATE)
      void work.then(resolve)
      if (this.isOver) setImmediate(this.#giveUp)
    })
  }

  end(): void {
    clearTimeout(this.#timer)
  }
}

/** Never rejects: what is wrong with one event says nothing about the others of its batch. */
async function guarded(event: OutboxEvent, sendOne: SendOne, late: AbortSignal | undefined): Promise<Delivery> {
  try {
    return await sendOne(event, late)
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause)
    return cause instanceof EventRefusedError ? { refused: reason, cause } : { failed: reason, cause }
  }
}

function isOf({ dispatcher, id, isTombstone }: Pending, asking: string, event: OutboxEvent): boolean {
  return dispatcher === asking && id === event.id && isTombstone === (event.tombstone !== undefined)
}

function isSlow(answer: Delivery | undefined): boolean {
  return typeof answer === 'object' && 'slow' in answer
}

function forgetOldest(map: Map<string, unknown>): void {
  for (const oldest of map.keys()) {
    map.delete(oldest)
    return
  }
}
