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

/** A stream that does not go on. */
export interface StoppedKey<Event> {
  readonly event: Event
  readonly kind: StopKind
  readonly reason: string
  readonly cause: unknown
  /** How often its event has failed. */
  readonly attempts: number
}

export interface WindowPlan<Event extends InboxEvent> extends LanesPlan<Event> {
  /** Messages in memory, at most. */
  readonly maxInFlight: number
  readonly maxBytes: number
  readonly firstBackoffMs: number
  readonly longestBackoffMs: number
  /** How often an event may fail before it is given up. Without `giveUp` it is tried for ever. */
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

/** The messages of one stream, by number. */
interface Queue<Event> {
  readonly name: string
  readonly tenant: string | undefined
  messages: Message<Event>[]
  busy: boolean
  /** By `performance.now()`. */
  notBefore: number
  /** Failures of the event at the head. */
  attempts: number
  /** Pauses since the last event got through. */
  pauses: number
}

/**
 * The messages of a broker that a process has in memory: a bounded number, sorted into streams. As many transactions as there are places take
 * the next events of streams that do not wait. While all places are taken, messages gather, and the next transaction has more of them.
 *
 * States of a stream: ready; in a transaction; waiting until its pause is over. Within a stream messages are sorted by number: brokers that
 * deliver again may do it out of order. A message whose number is not the next one waits for the missing one (a gap), and does not fail.
 *
 * A window that is full of messages that wait would keep the one that they wait for from being delivered: then it gives the last of each
 * stream back to the broker.
 */
export class Window<Event extends InboxEvent> {
  readonly #applier: Applier<Event>
  readonly #options: WindowPlan<Event>
  readonly #size: TransactionSize
  readonly #queues = new Map<string, Queue<Event>>()
  readonly #underWay = new Set<Promise<void>>()
  readonly #tenants = new Map<string | undefined, number>()
  readonly #lost = new AbortController()
  #waitingForRoom: (() => void)[] = []
  #count = 0
  #bytes = 0
  #pumping = false
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

  /** Of one stream. */
  countOf(stream: Stream): number {
    return this.#queues.get(nameOf(stream))?.messages.length ?? 0
  }

  /** Comes back when there is room for another message. */
  async room(): Promise<void> {
    while (this.isFull && !this.#closed) await new Promise<void>((resolve) => this.#waitingForRoom.push(resolve))
  }

  /** Takes a message, also where there is no room: a broker may deliver what was asked for before. */
  take(message: Message<Event>): void {
    if (this.#closed) return this.#giveBack(message)
    const { event } = message
    const name = nameOf(event)
    let queue = this.#queues.get(name)
    if (queue === undefined) {
      const tenant = this.#options.limitBy?.tenant(event)
      queue = { name, tenant, messages: [], busy: false, notBefore: 0, attempts: 0, pauses: 0 }
      this.#queues.set(name, queue)
    }
    const at = queue.messages.findLastIndex((each) => each.event.seq <= event.seq) + 1
    queue.messages.splice(at, 0, message)
    // It may be the one that the others wait for.
    if (at === 0 && !queue.busy) [queue.notBefore, queue.attempts] = [0, 0]
    this.#count++
    this.#bytes += message.bytes
    this.#pumpSoon()
  }

  /** Begins nothing more. Comes back when nothing is under way, and the rest is the broker's again. */
  async close(): Promise<void> {
    this.#closed = true
    clearTimeout(this.#timer)
    this.#roomAgain()
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
    if (this.#closed || this.#queues.size === 0) return
    let next = Infinity
    for (const { busy, notBefore } of this.#queues.values()) if (!busy) next = Math.min(next, notBefore)
    if (this.isFull && this.#underWay.size === 0 && next > performance.now()) this.#makeRoom()
    if (next !== Infinity && this.#underWay.size < this.#options.concurrency) {
      this.#timer = setTimeout(() => this.#pump(), Math.max(1, next - performance.now()))
    }
  }

  /** Streams of one tenant that are ready: of the tenant that has the fewest transactions. */
  #nextQueues(): Queue<Event>[] {
    const now = performance.now()
    const { limitBy, shared } = this.#options
    const used = (tenant: string | undefined): number => this.#tenants.get(tenant) ?? 0
    const ready = new Map<string | undefined, Queue<Event>[]>()
    for (const queue of this.#queues.values()) {
      if (queue.busy || queue.notBefore > now || queue.messages.length === 0) continue
      if (limitBy !== undefined && used(queue.tenant) >= limitBy.concurrency) continue
      const list = ready.get(queue.tenant)
      if (list === undefined) ready.set(queue.tenant, [queue])
      else list.push(queue)
    }
    let least: Queue<Event>[] = []
    let fewest = Infinity
    for (const [tenant, queues] of ready) if (used(tenant) < fewest) [least, fewest] = [queues, used(tenant)]
    const free = this.#options.concurrency - this.#underWay.size
    // What is ready is divided among the places that are free, as far as it is worth a transaction.
    const share = Math.max(1, Math.ceil(least.length / free))
    return shared ? least.slice(0, Math.max(share, Math.min(this.#size.now, FEW))) : least.slice(0, 1)
  }

  #begin(queues: readonly Queue<Event>[]): void {
    const [tenant] = queues.map((queue) => queue.tenant)
    const messages: Message<Event>[] = []
    const begun: Queue<Event>[] = []
    for (const queue of queues) {
      const room = this.#size.now - messages.length
      if (room <= 0) break
      begun.push(queue)
      queue.busy = true
      messages.push(...consecutive(queue.messages, room))
    }
    this.#tenants.set(tenant, (this.#tenants.get(tenant) ?? 0) + 1)
    const work = this.#apply(begun, messages).finally(() => {
      const left = (this.#tenants.get(tenant) ?? 1) - 1
      if (left === 0) this.#tenants.delete(tenant)
      else this.#tenants.set(tenant, left)
      this.#underWay.delete(work)
      this.#pumpSoon()
    })
    this.#underWay.add(work)
  }

  async #apply(queues: readonly Queue<Event>[], messages: readonly Message<Event>[]): Promise<void> {
    const startedAt = performance.now()
    const events = messages.map(({ event }) => event)
    const answers = await this.#applier.apply(events, { signal: this.#lost.signal })
    this.#size.learn(events.length, performance.now() - startedAt)
    const sent = new Set<Message<Event>>()
    const first = new Map<string, { readonly message: Message<Event>; readonly answer: Delivery }>()
    messages.forEach((message, place) => {
      const answer = answers[place] as Delivery
      if (answer === 'sent') sent.add(message)
      else if (!first.has(nameOf(message.event))) first.set(nameOf(message.event), { message, answer })
    })
    if (sent.size > 0)
      this.#options.applied(
        [...sent].map(({ event }) => event),
        performance.now() - startedAt,
      )
    for (const queue of queues) {
      const stop = first.get(queue.name)
      if (sent.size > 0 && queue.messages.some((message) => sent.has(message))) [queue.attempts, queue.pauses] = [0, 0]
      const verdict = stop === undefined ? 'wait' : await this.#judge(queue, stop.message, stop.answer)
      if (stop !== undefined && verdict === 'given up') sent.add(stop.message)
      const done = queue.messages.filter((message) => sent.has(message))
      queue.messages = queue.messages.filter((message) => !sent.has(message))
      queue.busy = false
      for (const message of done) this.#finish(message)
      if (verdict === 'back') this.#sendBack(queue, queue.messages)
      else if (queue.messages.length === 0) this.#queues.delete(queue.name)
    }
    this.#roomAgain()
  }

  /** What follows from an event that was not applied: its stream waits, it was given up, or all of the stream goes back. */
  async #judge(
    queue: Queue<Event>,
    { event }: Message<Event>,
    answer: Delivery,
  ): Promise<'wait' | 'given up' | 'back'> {
    const { cause, reason, kind } = readAnswer(answer)
    if (kind === 'failed') queue.attempts++
    queue.pauses++
    if (this.#options.stopped({ event, kind, reason, cause, attempts: queue.attempts })) return 'back'
    const { giveUp, attempts, firstBackoffMs, longestBackoffMs } = this.#options
    if (kind === 'failed' && giveUp !== undefined && queue.attempts >= attempts) {
      if ((await giveUp(event, reason)) === 'sent') {
        ;[queue.attempts, queue.pauses, queue.notBefore] = [0, 0, 0]
        return 'given up'
      }
    }
    const doublings = Math.min(queue.pauses - 1, MOST_DOUBLINGS)
    queue.notBefore = performance.now() + Math.min(longestBackoffMs, firstBackoffMs * 2 ** doublings)
    return 'wait'
  }

  /** Gives the last half of every stream that waits back to the broker. */
  #makeRoom(): void {
    for (const queue of this.#queues.values()) {
      const back = queue.messages
        .filter(({ again }) => again !== undefined)
        .slice(Math.floor(queue.messages.length / 2))
      if (!queue.busy && back.length > 0) this.#sendBack(queue, back)
    }
    this.#roomAgain()
  }

  #sendBack(queue: Queue<Event>, back: readonly Message<Event>[]): void {
    const gone = new Set(back)
    queue.messages = queue.messages.filter((message) => !gone.has(message))
    if (queue.messages.length === 0) this.#queues.delete(queue.name)
    for (const message of back) {
      this.#count--
      this.#bytes -= message.bytes
      this.#giveBack(message)
    }
  }

  #finish(message: Message<Event>): void {
    this.#count--
    this.#bytes -= message.bytes
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
    if (this.isFull && !this.#closed) return
    const waiting = this.#waitingForRoom
    this.#waitingForRoom = []
    for (const go of waiting) go()
  }
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
