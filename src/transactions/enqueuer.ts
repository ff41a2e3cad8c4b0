import type { Statement } from '../postgres/index.ts'

/** The payloads of each topic: `new Lockstep<{ trades: Trade }>(pool)`. */
export type EventMap = Record<string, unknown>

/** An event to be enqueued. Its stream is topic and key. */
export interface EventToEnqueue<Topic extends string = string, Payload = unknown> {
  readonly topic: Topic
  readonly key: string
  /** Whatever JSON can hold, or bytes. */
  readonly payload: Payload
  readonly headers?: Readonly<Record<string, string>>
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

/** An event as it will be written: checked, and no longer changed by whoever made it. */
export interface PreparedEvent extends Stream {
  readonly json: string | null
  readonly bytes: Buffer | null
  readonly headers: string | null
}

/** The last numbers of declared streams, read under their locks before the transaction's snapshot; they are counted on. */
export type StreamNumbers = Map<string, number>

/** What transactions need of the outbox, which stands above them. */
export interface Enqueuer {
  prepare(event: EventToEnqueue): PreparedEvent
  /** The statements that write events, to be sent right before COMMIT. */
  flush(events: readonly PreparedEvent[], numbers: StreamNumbers | undefined): Statement[]
  /** Told when events were committed. */
  committed(): void
}

/** One name for a stream; neither part can hold the separator in PostgreSQL. */
export function nameOf({ topic, key }: Stream): string {
  return `${topic}\0${key}`
}
