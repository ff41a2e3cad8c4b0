/**
 * Events: the types of what a transaction enqueues, and the contracts of their payloads.
 *
 * They have a module of their own, below transactions, because the public type of `tx` names them: `tx.enqueue(event)` is checked against
 * the payloads of its topics. The code is in the outbox, which registers it with transactions (src/outbox/outboxPart.ts).
 *
 * **V1 What is checked.** A contract is a schema of a topic. Enqueuing checks the payload after a round trip through JSON, before anything is written, and
 * writes the payload as it was given. Consuming checks it again, and hands on what the schema makes of it. So producer and consumer check the
 * same value, and a schema can turn text into a date for the consumer.
 *
 * **V2 Versions.** The version of the contract travels in the header `payload-version`. No header is version 1: what was enqueued before
 * there was a contract. A consumer brings an older payload to the newest version, one upcast after the other, and then checks it. A
 * version that it does not know is refused: the event waits, with its stream, until the consumer has the newer contract.
 *
 * **V3 The same tomorrow.** Schemas and upcasts are synchronous and see nothing but the payload. The verdict on an event does not depend
 * on when, or by which process, it is read. (docs/decisions/0066-contracts.md)
 */
import type { OptionNames } from '../checkOptions.ts'

export {
  checkContracts,
  type ConsumedBy,
  defineEvents,
  type EnqueuedBy,
  EventContracts,
  type ReadableEvent,
  type ReadEvent,
  type TopicContract,
  type TopicContracts,
  unchecked,
  type Upcast,
  VERSION_HEADER,
  withPayload,
  withVersion,
} from './contracts.ts'
export type { InputOf, OutputOf, SchemaIssue, SchemaResult, StandardSchema } from './standardSchema.ts'

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
   * Streams of the outbox that the transaction will enqueue to, locked from the beginning. Required at REPEATABLE READ and SERIALIZABLE,
   * where the last number of a stream must be read before the snapshot.
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
