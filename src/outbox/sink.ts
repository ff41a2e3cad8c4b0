import { checkOptions, type OptionNames } from '../checkOptions.ts'
import type { OutboxEvent } from './event.ts'

/**
 * What became of one event at a sink.
 * - `sent`: the other side has it.
 * - `refused`: the other side will not take it as it is: its stream waits, the others go on.
 * - `unknown`: it may have it or not: it is sent again.
 * - `failed`: something went wrong, and it cannot be said whether that is the event's fault. It is, where others got through.
 * After the first event of a stream that is not sent, later ones of that stream must not be sent: say `unknown` for them.
 */
export type Delivery =
  | 'sent'
  | { readonly refused: string; readonly cause?: unknown }
  | { readonly failed: string; readonly cause?: unknown }
  | { readonly unknown: string; readonly cause?: unknown; readonly retryAfterMs?: number }

/** What a sink is told about a batch. */
export interface BatchContext {
  readonly dispatcher: string
  readonly shard: number
  /** Grows with every owner of the shard: whoever comes with a smaller one is late. */
  readonly fence: bigint
  /** The history in which the fence was given out: see `event.history`. */
  readonly history: string
  /** Aborted when the shard was lost: what was not sent by then is somebody else's. */
  readonly signal: AbortSignal
  /**
   * Whether it is still certain that the shard is this dispatcher's, by the clocks: after a pause it says no before the signal does.
   * Left out where nobody can lose it.
   */
  readonly owned?: () => boolean
}

/** Where events go. One batch of a stream is in flight at a time; batches of several shards may be side by side. */
export interface Sink {
  readonly name: string
  /** One answer for each event, in their order. To throw means that it failed, without a word on single events. */
  send(events: readonly OutboxEvent[], context: BatchContext): Promise<readonly Delivery[]>
  /** Before the first batch. */
  open?(): Promise<void>
  /** Whether the other side can be reached: asked while nothing goes through, before another batch is risked. */
  healthy?(): Promise<boolean>
  /** After the last batch. */
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

/** What `perEvent()` takes beside the function. */
export interface PerEventOptions {
  readonly concurrency?: number
  readonly name?: string
}

const PER_EVENT_OPTIONS: OptionNames<PerEventOptions> = { concurrency: true, name: true }

/**
 * A sink that handles one event at a time: streams side by side, the events of a stream one after the other. To throw means that it
 * failed: its stream waits, or, where nothing gets through at all, everything does. Throw `new EventRefused(reason)` where it is the
 * event that cannot be taken.
 *
 * @example
 * lockstep.dispatcher({ sink: perEvent(async (event) => { await publish(event.topic, event.payload) }) })
 */
export function perEvent(
  handle: (event: OutboxEvent, context: BatchContext) => Promise<void> | void,
  options: PerEventOptions = {},
): Sink {
  checkOptions('perEvent()', options, PER_EVENT_OPTIONS)
  const { concurrency = 16, name = 'perEvent' } = options
  return {
    name,
    send(events, context) {
      return streamsSideBySide(events, context.signal, concurrency, async (event) => {
        try {
          await handle(event, context)
          return 'sent'
        } catch (error) {
          const reason = error instanceof Error ? error.message : String(error)
          return error instanceof EventRefused ? { refused: reason } : { failed: reason, cause: error }
        }
      })
    },
  }
}

/**
 * Sends streams side by side, the events of a stream one after the other, and none after the first that was not sent. What has not
 * begun when the signal is aborted is left alone.
 */
export async function streamsSideBySide(
  events: readonly OutboxEvent[],
  signal: AbortSignal,
  concurrency: number,
  send: (event: OutboxEvent) => Promise<Delivery>,
): Promise<Delivery[]> {
  const answers: Delivery[] = events.map(() => ({ unknown: 'an earlier event of its stream was not sent' }))
  const streams = byStream(events).values()
  const work = async (): Promise<void> => {
    for (const places of streams) {
      for (const place of places) {
        if (signal.aborted) return
        const answer = await send(events[place] as OutboxEvent)
        answers[place] = answer
        if (answer !== 'sent') break
      }
    }
  }
  await Promise.all(Array.from({ length: Math.min(concurrency, events.length) }, work))
  return answers
}

/** Thrown by a handler for an event that will not be taken, however often it comes. */
export class EventRefused extends Error {
  override readonly name = 'EventRefused'
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
