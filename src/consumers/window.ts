import { HistoryDivergedError, InboxGapError } from '../errors.ts'
import { nameOf, type Stream } from '../events/index.ts'
import type { InboxEvent } from '../inbox/index.ts'
import type { Delivery } from '../outbox/index.ts'
import type { Applier } from './applier.ts'
import type { LanesPlan } from './lanes.ts'
import type { Message } from './message.ts'
import { TransactionSize } from './transactionSize.ts'

/** Why a stream waits. */
export type StopKind = 'failed' | 'gap' | 'diverged' | 'unavailable'

/** A stream that does not continue. */
export interface StoppedKey<Event> {
  readonly event: Event
  readonly kind: StopKind
  readonly reason: string
  readonly cause: unknown
  /** How often its event has failed. */
  readonly attempts: number
  /** How often the stream has stopped at this event. */
  readonly stops: number
}

export interface WindowPlan<Event extends InboxEvent> extends LanesPlan<Event> {
  /** Messages in memory, at most. */
  readonly maxInFlight: number
  readonly maxBytes: number
  readonly firstBackoffMs: number
  readonly longestBackoffMs: number
  /** How often an event may fail before it is given up. Without `giveUp` it is tried forever. */
  readonly attempts: number
  /** Applies an event that was given up: the position moves, the handler is not called. */
  readonly giveUp?: ((event: Event, reason: string) => Promise<Delivery>) | undefined
  /** A stream stopped, or is stopped still. True: its messages are not kept, and go back. */
  readonly stopped: (stop: StoppedKey<Event>) => boolean
  /** Events were applied, or had been before. */
  readonly applied: (events: readonly Event[], tookMs: number) => void
  /** The broker could not be informed. It delivers the message again. */
  readonly failed: (error: unknown) => void
}

/** So few streams are always worth sharing a transaction. */
const FEW = 8
const MOST_DOUBLINGS = 20
/** Stopped streams are remembered for this multiple of the messages in memory. */
const MOST_REMEMBERED = 4

/** The number of messages that are requested first, when their size is not known yet. */
const FIRST_FREE = 16
/** How much a message counts for the size of the next ones. */
const WEIGHT = 0.05

/** Where a stream stopped. */
interface Stop {
  readonly seq: number
  readonly kind: StopKind
  /** How often it stopped there. */
  readonly stops: number
  /** How often that was because its event failed. */
  readonly attempts: number
  /** Until then the event waits, by `performance.now()`. */
  readonly until: number
}

/** The messages of one stream, by number. One that has none is kept for what is known of its stop. */
interface Queue<Event> {
  readonly name: string
  readonly tenant: string | undefined
  messages: Message<Event>[]
  busy: boolean
  stop: Stop | undefined
}

/** A stream's part of a transaction. */
interface Part<Event> {
  readonly queue: Queue<Event>
  readonly messages: readonly Message<Event>[]
}

/**
 * The messages of a broker that a process has in memory: a bounded number, sorted into streams. As many transactions as there are places take
 * the next events of streams that do not wait. While all places are taken, messages gather, and the next transaction has more of them.
 *
 * States of a stream: ready; in a transaction; waiting until its pause is over. Within a stream messages are sorted by number: brokers that
 * deliver again may do it out of order. A message whose number is not the next one waits for the missing one (a gap), and does not fail.
 *
 * A window that is full of messages that wait would keep the one that they wait for from being delivered, and those of other streams. Then it
 * gives messages back to the broker, now and then: of a stream with a gap the last half, of one whose event fails the last half of what is behind that event.
 * The event itself stays, and is counted. How often a stream has failed is known of its event, whatever else comes of the stream.
 */
export class Window<Event extends InboxEvent> {
  readonly #applier: Applier<Event>
  readonly #options: WindowPlan<Event>
  readonly #size: TransactionSize
  readonly #queues = new Map<string, Queue<Event>>()
  readonly #underWay = new Set<Promise<void>>()
  readonly #inTransaction = new Set<Message<Event>>()
  readonly #tenants = new Map<string | undefined, number>()
  readonly #forgotten = new WeakSet<object>()
  readonly #lost = new AbortController()
  #waitingForRoom: (() => void)[] = []
  #count = 0
  #bytes = 0
  #bytesEach: number | undefined
  /** When it may give messages back again. */
  #roomAt = 0
  #pumping = false
  #ending = false
  #closed = false
  #timer: NodeJS.Timeout | undefined

  constructor(applier: Applier<Event>, options: WindowPlan<Event>) {
    this.#applier = applier
    this.#options = options
    this.#size = new TransactionSize(options.batch)
  }

  /** Messages in memory. */
  get count(): number {
    return this.#count
  }

  get isFull(): boolean {
    return this.#count >= this.#options.maxInFlight || this.#bytes >= this.#options.maxBytes
  }

  /** How many more there is room for, if they are as large as the last ones. */
  get free(): number {
    const { maxInFlight, maxBytes } = this.#options
    if (this.isFull) return 0
    const byBytes =
      this.#bytesEach === undefined ? FIRST_FREE : Math.ceil((maxBytes - this.#bytes) / Math.max(1, this.#bytesEach))
    return Math.min(maxInFlight - this.#count, byBytes)
  }

  /** Of one stream. */
  countOf(stream: Stream): number {
    return this.#queues.get(nameOf(stream))?.messages.length ?? 0
  }

  /** Comes back when there is room for another message, or when it is to end: room may never come while the database does not answer. */
  async room(): Promise<void> {
    while (this.isFull && !this.#ending) await new Promise<void>((resolve) => this.#waitingForRoom.push(resolve))
  }

  /** Takes a message, also where there is no room: a broker may deliver what was asked for before. */
  take(message: Message<Event>): void {
    if (this.#closed) return this.#giveBack(message)
    const { event } = message
    const name = nameOf(event)
    let queue = this.#queues.get(name)
    if (queue === undefined) {
      const tenant = this.#options.limitBy?.tenant(event)
      queue = { name, tenant, messages: [], busy: false, stop: undefined }
      this.#queues.set(name, queue)
    }
    this.#bytesEach = (this.#bytesEach ?? message.bytes) * (1 - WEIGHT) + message.bytes * WEIGHT
    if (this.#replace(queue, message)) return
    const at = queue.messages.findLastIndex((each) => each.event.seq <= event.seq) + 1
    queue.messages.splice(at, 0, message)
    this.#count++
    this.#bytes += message.bytes
    this.#pumpSoon()
  }

  /** Puts another delivery of a message in the place of the first, which the broker does not wait for any more. */
  #replace(queue: Queue<Event>, message: Message<Event>): boolean {
    if (message.name === undefined) return false
    const at = queue.messages.findIndex((each) => each.name === message.name && !this.#inTransaction.has(each))
    if (at === -1) return false
    this.#bytes += message.bytes - (queue.messages[at] as Message<Event>).bytes
    queue.messages[at] = message
    return true
  }

  /**
   * Drops what a session has delivered: the broker delivers it again, here or elsewhere, and waits for no answer on this session. What is in a
   * transaction continues, and is dropped afterwards.
   */
  forget(session: object): void {
    this.#forgotten.add(session)
    for (const queue of this.#queues.values()) {
      const gone = queue.messages.filter((each) => each.session === session && !this.#inTransaction.has(each))
      if (gone.length > 0) this.#remove(queue, gone)
    }
    this.#roomAgain()
    this.#pumpSoon()
  }

  /** Wakes all callers that wait for space in the window. */
  end(): void {
    this.#ending = true
    this.#roomAgain()
  }

  /** Begins nothing more. Comes back when nothing is in progress, and the rest is the broker's again. */
  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#timer)
    this.end()
    while (this.#underWay.size > 0) await Promise.all(this.#underWay)
    for (const { messages } of this.#queues.values()) for (const message of messages) this.#giveBack(message)
    this.#queues.clear()
    this.#count = this.#bytes = 0
  }

  /** What it has is another process's by now: messages are forgotten, and what is in a transaction is rolled back if it can be. */
  abort(reason: unknown): void {
    this.#lost.abort(reason)
  }

  #pumpSoon(): void {
    if (this.#pumping) return
    this.#pumping = true
    // Messages that came together are in one transaction.
    setImmediate(() => {
      this.#pumping = false
      this.#pump()
    })
  }

  #pump(): void {
    clearTimeout(this.#timer)
    while (!this.#closed && this.#underWay.size < this.#options.concurrency) {
      const queues = this.#nextQueues()
      if (queues.length === 0) break
      this.#begin(queues)
    }
    if (this.#closed || this.#count === 0) return
    const now = performance.now()
    let next = Infinity
    for (const queue of this.#queues.values()) {
      if (queue.busy || queue.messages.length === 0 || this.#isAtLimit(queue.tenant)) continue
      next = Math.min(next, readyAt(queue))
    }
    if (this.isFull && this.#underWay.size === 0 && next > now) {
      if (this.#roomAt <= now) this.#makeRoom()
      next = Math.min(next, this.#roomAt)
    }
    if (next !== Infinity && this.#underWay.size < this.#options.concurrency) {
      this.#timer = setTimeout(() => this.#pump(), Math.max(1, next - performance.now()))
    }
  }

  #usedBy(tenant: string | undefined): number {
    return this.#tenants.get(tenant) ?? 0
  }

  #isAtLimit(tenant: string | undefined): boolean {
    const { limitBy } = this.#options
    return limitBy !== undefined && this.#usedBy(tenant) >= limitBy.concurrency
  }

  /** Streams of one tenant that are ready: of the tenant that has the fewest transactions. */
  #nextQueues(): Queue<Event>[] {
    const now = performance.now()
    const { shared } = this.#options
    const ready = new Map<string | undefined, Queue<Event>[]>()
    for (const queue of this.#queues.values()) {
      if (queue.busy || queue.messages.length === 0 || readyAt(queue) > now) continue
      if (this.#isAtLimit(queue.tenant)) continue
      const list = ready.get(queue.tenant)
      if (list === undefined) ready.set(queue.tenant, [queue])
      else list.push(queue)
    }
    let least: Queue<Event>[] = []
    let fewest = Infinity
    for (const [tenant, queues] of ready) {
      if (this.#usedBy(tenant) < fewest) [least, fewest] = [queues, this.#usedBy(tenant)]
    }
    const free = this.#options.concurrency - this.#underWay.size
    // The ready events are divided among the free transactions, unless that makes the transactions too small.
    const share = Math.max(1, Math.ceil(least.length / free))
    return shared ? least.slice(0, Math.max(share, Math.min(this.#size.now, FEW))) : least.slice(0, 1)
  }

  #begin(queues: readonly Queue<Event>[]): void {
    const [tenant] = queues.map((queue) => queue.tenant)
    const parts: Part<Event>[] = []
    let room = this.#size.now
    for (const queue of queues) {
      if (room <= 0) break
      const messages = consecutive(queue.messages, room)
      room -= messages.length
      queue.busy = true
      for (const message of messages) this.#inTransaction.add(message)
      parts.push({ queue, messages })
    }
    this.#tenants.set(tenant, this.#usedBy(tenant) + 1)
    const work = this.#apply(parts).finally(() => {
      const left = this.#usedBy(tenant) - 1
      if (left === 0) this.#tenants.delete(tenant)
      else this.#tenants.set(tenant, left)
      this.#underWay.delete(work)
      this.#pumpSoon()
    })
    this.#underWay.add(work)
  }

  async #apply(parts: readonly Part<Event>[]): Promise<void> {
    const startedAt = performance.now()
    const events = parts.flatMap(({ messages }) => messages.map(({ event }) => event))
    const answers = await this.#applier.apply(events, { signal: this.#lost.signal, committed: this.#learn })
    const tookMs = performance.now() - startedAt
    const sent = events.filter((_, place) => answers[place] === 'sent')
    if (sent.length > 0) this.#options.applied(sent, tookMs)
    let from = 0
    for (const part of parts) {
      await this.#conclude(part, answers.slice(from, from + part.messages.length))
      from += part.messages.length
    }
    this.#roomAgain()
  }

  readonly #learn = (events: number, handlingMs: number, restMs: number): void =>
    this.#size.learn(events, handlingMs, restMs)

  /** The outcome of the messages of one stream, and what the stream does next. */
  async #conclude({ queue, messages }: Part<Event>, answers: readonly Delivery[]): Promise<void> {
    const stopped = answers.findIndex((answer) => answer !== 'sent')
    const done = messages.filter((_, place) => answers[place] === 'sent')
    const last = done.at(-1)?.event.seq
    if (last !== undefined && queue.stop !== undefined) {
      const { kind, seq } = queue.stop
      // An event that failed is counted until it is through: what is applied of those before it are duplicates.
      if (last >= seq || kind === 'gap' || kind === 'unavailable') queue.stop = undefined
    }
    let verdict: 'wait' | 'given up' | 'back' = 'wait'
    if (stopped !== -1) {
      const message = messages[stopped] as Message<Event>
      verdict = await this.#judge(queue, message, answers[stopped] as Delivery)
      if (verdict === 'given up') done.push(message)
    }
    const isForgotten = ({ session }: Message<Event>): boolean => session !== undefined && this.#forgotten.has(session)
    for (const message of messages) this.#inTransaction.delete(message)
    queue.busy = false
    this.#remove(queue, [...new Set([...done, ...messages.filter(isForgotten)])])
    for (const message of done) if (!isForgotten(message)) this.#finish(message)
    if (verdict !== 'back') return
    this.#sendBack(queue, queue.messages)
    this.#queues.delete(queue.name)
  }

  /** What follows from an event that was not applied: its stream waits, it was given up, or all of the stream goes back. */
  async #judge(
    queue: Queue<Event>,
    { event }: Message<Event>,
    answer: Delivery,
  ): Promise<'wait' | 'given up' | 'back'> {
    const { cause, reason, kind } = readAnswer(answer)
    const before = queue.stop?.seq === event.seq ? queue.stop : { stops: 0, attempts: 0 }
    const [stops, tried] = [before.stops + 1, before.attempts + (kind === 'failed' ? 1 : 0)]
    const { giveUp, attempts, firstBackoffMs, longestBackoffMs } = this.#options
    const pauseMs = Math.min(longestBackoffMs, firstBackoffMs * 2 ** Math.min(stops - 1, MOST_DOUBLINGS))
    queue.stop = { seq: event.seq, kind, stops, attempts: tried, until: performance.now() + pauseMs }
    if (this.#options.stopped({ event, kind, reason, cause, attempts: tried, stops })) return 'back'
    if (kind === 'failed' && giveUp !== undefined && tried >= attempts) {
      if ((await giveUp(event, reason)) === 'sent') {
        queue.stop = undefined
        return 'given up'
      }
    }
    return 'wait'
  }

  /** Gives messages of streams that wait back to the broker. They come again soon: so it does that now and then. */
  #makeRoom(): void {
    this.#roomAt = performance.now() + this.#options.firstBackoffMs
    for (const queue of this.#queues.values()) {
      const { stop, messages, busy } = queue
      // Where the database does not answer, nothing gets through, whatever comes instead.
      if (busy || stop === undefined || stop.kind === 'unavailable') continue
      const behind = stop.kind === 'gap' ? messages : messages.slice(1)
      const back = behind.slice(Math.floor(behind.length / 2)).filter(({ again }) => again !== undefined)
      this.#sendBack(queue, back)
    }
    this.#roomAgain()
  }

  #sendBack(queue: Queue<Event>, back: readonly Message<Event>[]): void {
    this.#remove(queue, back)
    for (const message of back) this.#giveBack(message)
  }

  /** Without the messages. A stream that stopped is remembered, if there are not too many. */
  #remove(queue: Queue<Event>, messages: readonly Message<Event>[]): void {
    const gone = new Set(messages)
    queue.messages = queue.messages.filter((message) => !gone.has(message))
    this.#count -= gone.size
    for (const { bytes } of gone) this.#bytes -= bytes
    if (queue.messages.length > 0 || queue.busy) return
    if (queue.stop === undefined) this.#queues.delete(queue.name)
    else if (this.#queues.size > MOST_REMEMBERED * this.#options.maxInFlight) this.#forgetStops()
  }

  #forgetStops(): void {
    for (const { name, messages, busy } of this.#queues.values())
      if (messages.length === 0 && !busy) this.#queues.delete(name)
  }

  #finish(message: Message<Event>): void {
    Promise.resolve()
      .then(() => message.done())
      .catch((error: unknown) => this.#options.failed(error))
  }

  #giveBack(message: Message<Event>): void {
    Promise.resolve()
      .then(() => message.again?.())
      .catch((error: unknown) => this.#options.failed(error))
  }

  #roomAgain(): void {
    if (this.isFull && !this.#ending) return
    const waiting = this.#waitingForRoom
    this.#waitingForRoom = []
    for (const go of waiting) go()
  }
}

/** When the next event of a stream can be tried. One before that at which it stopped may be the one that it waits for. */
function readyAt<Event extends InboxEvent>({ stop, messages }: Queue<Event>): number {
  const [head] = messages
  return stop === undefined || head === undefined || head.event.seq < stop.seq ? 0 : stop.until
}

/** The first messages of a stream, up to a number that is missing or came twice. */
function consecutive<Event extends InboxEvent>(messages: readonly Message<Event>[], most: number): Message<Event>[] {
  const taken: Message<Event>[] = []
  let last: number | undefined
  for (const message of messages) {
    const { seq } = message.event
    if (taken.length >= most || (last !== undefined && seq !== last + 1)) break
    taken.push(message)
    last = seq
  }
  return taken
}

function readAnswer(answer: Delivery): { kind: StopKind; reason: string; cause: unknown } {
  if (typeof answer === 'string') return { kind: 'unavailable', reason: answer, cause: undefined }
  const { cause } = answer
  const reason = String('refused' in answer ? answer.refused : Object.values(answer)[0])
  if (cause instanceof InboxGapError) return { kind: 'gap', reason: cause.message, cause }
  if (cause instanceof HistoryDivergedError) return { kind: 'diverged', reason, cause }
  return { kind: 'refused' in answer || 'failed' in answer ? 'failed' : 'unavailable', reason, cause }
}
