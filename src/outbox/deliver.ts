import { outboxDelivered } from '../observe/index.ts'
import type { Breaker } from './breaker.ts'
import type { OutboxEvent } from './event.ts'
import { type BatchContext, byStream, type Delivery, type Sink } from './sink.ts'

/** A stream that got no further. */
export interface StoppedStream {
  /** The place of the event at which it was stopped. */
  readonly place: number
  readonly reason: string
  /** Whether it counts against the event: not if its outcome is unknown. */
  readonly blamed: boolean
  /** Whether it counts if the sink is known to take events. */
  readonly failed: boolean
  /** Whether it says nothing about the sink: it is slow alone, or no sink can be given its event. */
  readonly alone: boolean
  /** Whether its event may be in progress still: it is tried again at once, beside the others. */
  readonly slow: boolean
  readonly retryAfterMs: number
}

/** An event, and why no sink can be given it. */
type CheckedEvent = OutboxEvent & { readonly fault?: string | undefined }

/** The outcome of a batch. */
export interface DeliveryReport {
  /** Places of the events that the other side has. */
  readonly sent: ReadonlySet<number>
  readonly stops: readonly StoppedStream[]
  /** Nothing got through: the sink is down, and no event is to blame. */
  readonly down: StoppedStream | undefined
}

/** How many streams are tried alone before the sink counts as down. */
const ENOUGH_ALONE = 3
const NOT_TRIED = 'it was not tried: those before it had failed'
/** More than that is no answer to "when". */
const LONGEST_RETRY_AFTER_MS = 24 * 60 * 60 * 1000

/**
 * Sends a batch and makes out who is to blame for what was not sent. Refused: the event. Unknown while others got through: the event,
 * too, but nothing is counted against it. Unknown while nothing got through: the sink. A sink that throws says nothing about single
 * events: then every stream is tried by itself, and the events of one that fails again one by one. An event that no sink can be given
 * is refused here: in the sink's hands it could make a batch fail that had been sent in part. `provenSince`: a success of others since
 * then shows that the sink is not down; by default, one while this was continuing.
 */
export async function deliver(
  sink: Sink,
  breaker: Breaker,
  events: readonly CheckedEvent[],
  batchContext: BatchContext,
  provenSince?: number,
): Promise<DeliveryReport> {
  const startedAt = performance.now()
  const valid = events.every(({ fault }) => fault === undefined)
  const places = valid
    ? [...events.keys()]
    : sort(events)
        .streams.flat()
        .toSorted((one, other) => one - other)
  const answers = await ask(sink, events, places, batchContext)
  // Mostly the sink takes every event. Sorting them into streams is needed only for the others.
  if (valid && events.length > 0 && Array.isArray(answers) && answers.every((answer) => answer === 'sent')) {
    breaker.succeeded()
    return { sent: new Set(places), stops: [], down: undefined }
  }
  const sent = new Set<number>()
  let stops: StoppedStream[] = []
  const { streams, faults } = sort(events)
  if (Array.isArray(answers)) stops = streams.flatMap((stream) => readStream(stream, answers, sent))
  else {
    for (const stream of streams) {
      const enough = batchContext.signal.aborted || (sent.size === 0 && stops.length >= ENOUGH_ALONE)
      if (enough) stops.push(stopAt(stream[0] as number, { unknown: NOT_TRIED }))
      else stops.push(...(await sendAlone(sink, events, stream, batchContext, sent)))
    }
  }
  // A success of another shard also shows that the sink is not down.
  const through =
    sent.size > 0 || stops.some(({ blamed }) => blamed) || breaker.succeededSince(provenSince ?? startedAt)
  stops = stops.map((stop) => ({ ...stop, blamed: stop.blamed || (stop.failed && through) }))
  if (sent.size > 0) breaker.succeeded()
  const down = through ? undefined : stops.find(({ alone }) => !alone)
  for (const { before, stop } of faults) if (before.every((place) => sent.has(place))) stops.push(stop)
  return { sent, stops, down }
}

/** The places of each stream's events up to the first that no sink can be given, and those. */
function sort(events: readonly CheckedEvent[]): {
  readonly streams: readonly (readonly number[])[]
  readonly faults: readonly { readonly before: readonly number[]; readonly stop: StoppedStream }[]
} {
  const faults: { before: readonly number[]; stop: StoppedStream }[] = []
  const streams: (readonly number[])[] = []
  for (const places of byStream(events).values()) {
    const at = places.findIndex((place) => events[place]?.fault !== undefined)
    const before = at < 0 ? places : places.slice(0, at)
    if (before.length > 0) streams.push(before)
    if (at < 0) continue
    const place = places[at] as number
    const { topic, key, seq, fault } = events[place] as CheckedEvent
    const refused = `#${seq} of ${topic}/${key} was not given to the sink: ${fault}`
    faults.push({ before, stop: { ...stopAt(place, { refused }), alone: true } })
  }
  return { streams, faults }
}

/** The answers for the events at these places, by place; or what was thrown. */
async function ask(
  sink: Sink,
  events: readonly OutboxEvent[],
  places: readonly number[],
  batchContext: BatchContext,
): Promise<readonly Delivery[] | { thrown: unknown }> {
  if (places.length === 0) return []
  try {
    const batch = places.length === events.length ? events : places.map((place) => events[place] as OutboxEvent)
    const answers = await sink.send(batch, batchContext)
    if (Array.isArray(answers) && answers.length === places.length) {
      return batch === events ? (answers as readonly Delivery[]) : spread(places, answers as readonly Delivery[])
    }
    return {
      thrown: new Error(`The sink ${sink.name} gave ${String(answers?.length)} answers for ${places.length} events.`),
    }
  } catch (thrown) {
    return { thrown }
  }
}

/** Reads the answers for one stream. What comes after the first event that was not sent does not count, whatever is said of it. */
function readStream(places: readonly number[], answers: readonly Delivery[], sent: Set<number>): StoppedStream[] {
  for (const place of places) {
    const answer = answers[place]
    if (answer === 'sent') sent.add(place)
    else return [stopAt(place, answer)]
  }
  return []
}

function stopAt(place: number, given: Delivery | null | undefined): StoppedStream {
  const answer = given ?? undefined
  const stop = { place, blamed: false, failed: false, alone: false, slow: false, retryAfterMs: 0 }
  if (typeof answer === 'object' && 'refused' in answer) return { ...stop, reason: clean(answer.refused), blamed: true }
  if (typeof answer === 'object' && 'failed' in answer) return { ...stop, reason: clean(answer.failed), failed: true }
  if (typeof answer === 'object' && 'slow' in answer) {
    return { ...stop, reason: clean(`slow: ${answer.slow}`), alone: true, slow: true }
  }
  const unknown = typeof answer === 'object' ? answer : { unknown: `the sink answered ${String(answer)}` }
  const { retryAfterMs: after = 0 } = unknown
  return {
    ...stop,
    reason: clean(unknown.unknown),
    retryAfterMs: after > 0 ? Math.min(after, LONGEST_RETRY_AFTER_MS) : 0,
  }
}

async function sendAlone(
  sink: Sink,
  events: readonly OutboxEvent[],
  places: readonly number[],
  batchContext: BatchContext,
  sent: Set<number>,
): Promise<StoppedStream[]> {
  const together = await ask(sink, events, places, batchContext)
  if (Array.isArray(together)) return readStream(places, together as readonly Delivery[], sent)
  const [only] = places
  if (places.length === 1) return [thrownAt(only as number, (together as { thrown: unknown }).thrown)]
  for (const place of places) {
    if (batchContext.signal.aborted) return [thrownAt(place, batchContext.signal.reason)]
    const answers = await ask(sink, events, [place], batchContext)
    if (!Array.isArray(answers)) return [thrownAt(place, (answers as { thrown: unknown }).thrown)]
    const stopped = readStream([place], answers as readonly Delivery[], sent)
    if (stopped.length > 0) return stopped
  }
  return []
}

/** The answers at the places of their events. */
function spread(places: readonly number[], answers: readonly Delivery[]): Delivery[] {
  const all: Delivery[] = []
  places.forEach((place, index) => (all[place] = answers[index] as Delivery))
  return all
}

function thrownAt(place: number, thrown: unknown): StoppedStream {
  return stopAt(place, { failed: thrown instanceof Error ? thrown.message : String(thrown) })
}

const MAX_REASON = 1000

/** Fit for the table of those that wait: PostgreSQL takes neither a zero nor half a character there. */
function clean(reason: unknown): string {
  return String(reason).slice(0, MAX_REASON).replaceAll('\0', '').toWellFormed()
}

/** Publishes what the sink has confirmed. The context is created only if a listener exists. */
export function reportDelivered(
  schema: string,
  owner: { readonly batchContext: BatchContext },
  batch: readonly OutboxEvent[],
  report: DeliveryReport,
  startedAt: number,
): void {
  if (!outboxDelivered.hasSubscribers || report.sent.size === 0) return
  const events = batch.filter((_, place) => report.sent.has(place))
  const { dispatcher, shard } = owner.batchContext
  outboxDelivered.publish({ schema, dispatcher, shard, events, tookMs: performance.now() - startedAt })
}
