/**
 * Events: the types of what a transaction enqueues.
 *
 * They have a module of their own, below transactions, because the public type of `tx` names them: `tx.enqueue(event)` is checked against
 * the payloads of its topics. The code is in the outbox, which registers it with transactions (src/outbox/outboxPart.ts).
 */
import type { OptionNames } from '../checkOptions.ts'

/** The payloads of each topic: `new Lockstep<{ trades: Trade }>(pool)`. */
export type EventMap = Record<string, unknown>

/** An event to be enqueued. Its stream is topic and key. */
export interface EventToEnqueue<Topic extends string = string, Payload = unknown> {
  readonly topic: Topic
  readonly key: string
  /** Whatever JSON can hold, or bytes. */
  readonly payload: Payload
  readonly headers?: Readonly<Record<string, string>>
  /** It is not sent before this time of the database's clock, and the later events of its stream wait behind it. */
  readonly notBefore?: Date
}

/** An event of one of the topics. */
export type EventOf<Events extends object> = {
  [Topic in keyof Events & string]: EventToEnqueue<Topic, Events[Topic]>
}[keyof Events & string]

/** Topic and key: within a stream, events are numbered without gaps and keep their order. */
export interface Stream {
  readonly topic: string
  readonly key: string
}

/** The options of a transaction that the outbox reads. */
export interface EventOptions {
  /**
   * Streams of the outbox that the transaction will enqueue to. Needed at REPEATABLE READ and SERIALIZABLE, where the last number of
   * a stream must be read before the snapshot; at every level they are locked from the beginning.
   */
  readonly streams?: readonly Stream[]
}

export const EVENT_OPTIONS: OptionNames<EventOptions> = { streams: true }

/** The methods that the outbox adds to `tx`. */
export interface EventMethods<Events extends object = EventMap> {
  /**
   * Puts an event into the outbox, with the transaction or not at all. It gets the next number of its stream (topic and key) right
   * before COMMIT; in a transaction of the caller's own (`join`) at once.
   *
   * @example
   * await tx.enqueue({ topic: 'trades', key: portfolioId, payload: { id: 101, quantity: 5 } })
   */
  enqueue(event: EventOf<Events>): Promise<void>
  /** The same for many events, in their order. */
  enqueueMany(events: readonly EventOf<Events>[]): Promise<void>
}

/** One name for a stream; neither part can hold the separator in PostgreSQL. */
export function nameOf({ topic, key }: Stream): string {
  return `${topic}\0${key}`
}
