import type { OutboxEvent } from './event.ts'

/**
 * The outcome of one event at a sink.
 * - `sent`: the other side has it.
 * - `refused`: the other side will not take it as it is: its stream waits, the others continue.
 * - `unknown`: it may have it or not: it is sent again.
 * - `failed`: something went wrong, and it cannot be said whether that is the event's fault. It is, where others got through.
 * - `slow`: it takes longer than `context.slowAfterMs`, or has not begun because its receiver is slow. Its stream is parked and continues
 *   beside the others: nothing counts against it, nor against the sink.
 * After the first event of a stream that is not sent, later ones of that stream must not be sent: say `unknown` for them.
 */
export type Delivery =
  | 'sent'
  | { readonly refused: string; readonly cause?: unknown }
  | { readonly failed: string; readonly cause?: unknown }
  | { readonly slow: string; readonly cause?: unknown }
  | { readonly unknown: string; readonly cause?: unknown; readonly retryAfterMs?: number }

/** What a sink receives about a batch. */
export interface BatchContext {
  readonly dispatcher: string
  readonly shard: number
  /** Grows with every owner of the shard: a sender with a smaller one is late. */
  readonly fence: bigint
  /** The history in which the fence was given out: see `event.history`. */
  readonly history: string
  /** Aborted when the shard was lost: another owner sends what was not sent by then. */
  readonly signal: AbortSignal
  /**
   * Whether it is still certain that the shard is this dispatcher's, by the clocks: after a pause it says no before the signal does.
   * Undefined if the shard cannot be lost.
   */
  readonly owned?: () => boolean
  /**
   * How long a stream may take in this batch: the others of its shard wait for the batch. A sink whose streams have different receivers
   * answers `slow` for what takes longer, see `ConcurrentStreams`. Left out: as long as it takes.
   */
  readonly slowAfterMs?: number
  /** Whether these streams were parked before: no other stream waits for this batch. */
  readonly beside?: boolean
}

/** Where events go. One batch of a stream is in flight at a time; batches of several shards can be in flight at the same time. */
export interface Sink {
  readonly name: string
  /**
   * Whether the other side refuses what a dispatcher sends that has lost its shard: it takes a number only behind the one before, once. Then
   * the shards of a process whose session has ended are taken over at once, and not after `ttlMs`. Left out: it does not.
   */
  readonly enforcesFences?: boolean
  /** One answer for each event, in their order. To throw means that it failed, without a word on single events. */
  send(events: readonly OutboxEvent[], context: BatchContext): Promise<readonly Delivery[]>
  /** Before the first batch of each `run()`. A sink can be used by one run after the other, and by several at once. */
  open?(): Promise<void>
  /** Whether the other side can be reached: asked while nothing goes through, before another batch is risked. */
  healthy?(): Promise<boolean>
  /** After the last batch of each `run()`: once for each `open()`. */
  close?(): Promise<void>
}

/** A function as a sink: it gets a batch in order. That it returns nothing means that all were sent. */
export type SinkFunction = (
  events: readonly OutboxEvent[],
  context: BatchContext,
) => Promise<readonly Delivery[] | void> | readonly Delivery[] | void

/** A sink of what was given: a sink, or a function. */
export function sinkOf(given: Sink | SinkFunction): Sink {
  if (typeof given !== 'function') return given
  return {
    name: given.name === '' ? 'function' : given.name,
    async send(events, context) {
      const answer = await given(events, context)
      return answer ?? events.map(() => 'sent' as const)
    },
  }
}

/** Thrown by a handler for an event that will not be taken, however often it comes. */
export class EventRefusedError extends Error {
  override readonly name = 'EventRefusedError'
}

/** The places of each stream's events in a batch. */
export function byStream(events: readonly OutboxEvent[]): Map<string, number[]> {
  const places = new Map<string, number[]>()
  events.forEach((event, place) => {
    const name = `${event.topic}\0${event.key}`
    const list = places.get(name)
    if (list === undefined) places.set(name, [place])
    else list.push(place)
  })
  return places
}
