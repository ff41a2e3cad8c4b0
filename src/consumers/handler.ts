import type { EventMap, Stream } from '../events/index.ts'
import type { Transaction } from '../transactions/index.ts'

/** An event as a consumer gets it, from the outbox or from a broker. */
export interface ConsumedEvent<Payload = unknown, Topic extends string = string> extends Stream {
  readonly topic: Topic
  readonly key: string
  /** From 1, without a gap, within topic and key. */
  readonly seq: number
  readonly id: string
  /** As it was enqueued: what JSON returns, or bytes. Undefined in a tombstone. */
  readonly payload: Payload
  readonly body: Buffer
  readonly contentType: string
  /** Those that were enqueued with it. */
  readonly headers: Readonly<Record<string, string>>
  readonly enqueuedAt: Date
  readonly generation: number | undefined
  /** Why it has no payload: its number was given up. */
  readonly tombstone?: string | undefined
}

/** The topics of an event map that a name, or a pattern with a star at its end, stands for. */
type TopicsOf<Events extends object, Topic extends string> = string extends keyof Events
  ? string
  : Topic extends `${infer Prefix}*`
    ? Extract<keyof Events & string, `${Prefix}${string}`>
    : Extract<keyof Events & string, Topic>

type EventsOfTopics<Events extends object, Topic extends string> = {
  [Each in Topic]: ConsumedEvent<Each extends keyof Events ? Events[Each] : unknown, Each>
}[Topic]

/** The events of these topics, as a union discriminated by `topic`. */
export type ConsumedEventOf<Events extends object, Topic extends string> = EventsOfTopics<
  Events,
  TopicsOf<Events, Topic>
>

/** The events of all topics of contracts, as a union discriminated by `topic`. */
export type ConsumedEvents<Consumed extends object> = ConsumedEventOf<Consumed, keyof Consumed & string>

/**
 * The effect of one event, in the transaction in which it is accepted. It may be run again after a rollback: what it does outside the
 * database is not undone.
 */
export type EventHandler<Event = ConsumedEvent, Client = unknown, Events extends object = EventMap> = (
  event: Event,
  tx: Transaction<Client, Events>,
) => Promise<unknown> | void

/** The effect of consecutive events of one key, in the order of their numbers. */
export type ListHandler<Event = ConsumedEvent, Client = unknown, Events extends object = EventMap> = (
  events: readonly Event[],
  tx: Transaction<Client, Events>,
) => Promise<unknown> | void
