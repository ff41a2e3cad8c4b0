import type { Breaker } from './breaker.ts'
import { FetchedEvent, type OutboxEvent } from './event.ts'
import { type BatchContext, byStream, type Delivery, type Sink } from './sink.ts'

/** A stream that got no further. */
export interface Stop {
  /** The place of the event at which it was stopped. */
  readonly place: number
  readonly reason: string
  /** Whether it counts against the event: not where its fate is only unknown. */
  readonly blamed: boolean
  /** Whether it counts if the sink is known to take events. */
  readonly failed: boolean
  readonly retryAfterMs: number
}

/** What became of a batch. */
export interface DeliveryReport {
  /** Places of the events that the other side has. */
  readonly sent: ReadonlySet<number>
  readonly stops: readonly Stop[]
  /** Nothing got through: the sink is down, and no event is to blame. */
  readonly down: Stop | undefined
}

/** So many streams are tried alone before the sink is held to be down. */
const ENOUGH_ALONE = 3
const NOT_TRIED = 'it was not tried: those before it had failed'
/** More than that is no answer to "when". */
const LONGEST_RETRY_AFTER_MS = 24 * 60 * 60 * 1000

/**
 * Sends a batch and makes out who is to blame for what was not sent. Refused: the event. Unknown while others got through: the event,
 * too, but nothing is counted against it. Unknown while nothing got through: the sink. A sink that throws tells nothing about single
 * events: then every stream is tried by itself, and the events of one that fails again one by one. `provenSince`: a success of others
 * since then shows that the sink is not down; by default, one while this was going on.
 *
 * An event that was too large to be read stops its stream like one that the sink refuses. The sink never sees it, nor what follows it.
 */
export async function deliver(
  sink: Sink,
  breaker: Breaker,
  events: readonly OutboxEvent[],
  context: BatchContext,
  provenSince?: number,
): Promise<DeliveryReport> {
  const unreadable = stopsAtUnreadable(events)
  if (unreadable.length === 0) return deliverReadable(sink, breaker, events, context, provenSince)
  const heldBack = new Set(unreadable.flatMap(({ stop, later }) => [stop.place, ...later]))
  const places = events.flatMap((_, place) => (heldBack.has(place) ? [] : [place]))
  const stops = unreadable.map(({ stop }) => stop)
  if (places.length === 0) return { sent: new Set(), stops, down: undefined }
  const readable = places.map((place) => events[place] as OutboxEvent)
  const report = await deliverReadable(sink, breaker, readable, context, provenSince)
  const original = (stop: Stop): Stop => ({ ...stop, place: places[stop.place] as number })
  const stopped = report.stops.map(original)
  // A stream that the sink stopped earlier is stopped there.
  const streams = new Set(stopped.map(({ place }) => nameOf(events[place] as OutboxEvent)))
  return {
    sent: new Set([...report.sent].map((place) => places[place] as number)),
    stops: [...stopped, ...stops.filter(({ place }) => !streams.has(nameOf(events[place] as OutboxEvent)))],
    down: report.down && original(report.down),
  }
}

/** The first event of each stream that was too large to be read, with the places of those that follow it. */
function stopsAtUnreadable(events: readonly OutboxEvent[]): { stop: Stop; later: readonly number[] }[] {
  if (!events.some((event) => reasonNotToSend(event) !== undefined)) return []
  return [...byStream(events).values()].flatMap((places) => {
    const at = places.findIndex((place) => reasonNotToSend(events[place] as OutboxEvent) !== undefined)
    if (at < 0) return []
    const place = places[at] as number
    const reason = reasonNotToSend(events[place] as OutboxEvent) as string
    return [{ stop: { place, reason, blamed: true, failed: false, retryAfterMs: 0 }, later: places.slice(at + 1) }]
  })
}

function reasonNotToSend(event: OutboxEvent): string | undefined {
  return event instanceof FetchedEvent ? event.unreadable : undefined
}

function nameOf({ topic, key }: OutboxEvent): string {
  return `${topic}\0${key}`
}

async function deliverReadable(
  sink: Sink,
  breaker: Breaker,
  events: readonly OutboxEvent[],
  context: BatchContext,
  provenSince?: number,
): Promise<DeliveryReport> {
  const startedAt = performance.now()
  const sent = new Set<number>()
  let stops: Stop[] = []
  const streams = [...byStream(events).values()]
  const answers = await ask(sink, events, context)
  if (Array.isArray(answers)) stops = streams.flatMap((places) => readStream(places, answers, sent))
  else {
    for (const places of streams) {
      const enough = context.signal.aborted || (sent.size === 0 && stops.length >= ENOUGH_ALONE)
      if (enough)
        stops.push({ place: places[0] as number, reason: NOT_TRIED, blamed: false, failed: false, retryAfterMs: 0 })
      else stops.push(...(await sendAlone(sink, events, places, context, sent)))
    }
  }
  // Somebody else's success shows as well that the sink is not down.
  const through =
    sent.size > 0 || stops.some(({ blamed }) => blamed) || breaker.succeededSince(provenSince ?? startedAt)
  stops = stops.map((stop) => ({ ...stop, blamed: stop.blamed || (stop.failed && through) }))
  if (sent.size > 0) breaker.succeeded()
  const [first] = stops
  const down = through ? undefined : first
  return { sent, stops, down }
}

/** The answers, or what was thrown. */
async function ask(
  sink: Sink,
  events: readonly OutboxEvent[],
  context: BatchContext,
): Promise<readonly Delivery[] | { thrown: unknown }> {
  try {
    const answers = await sink.send(events, context)
    if (Array.isArray(answers) && answers.length === events.length) return answers as readonly Delivery[]
    return {
      thrown: new Error(`The sink ${sink.name} gave ${String(answers?.length)} answers for ${events.length} events.`),
    }
  } catch (thrown) {
    return { thrown }
  }
}

/** Reads the answers for one stream. What comes after the first event that was not sent does not count, whatever is said of it. */
function readStream(places: readonly number[], answers: readonly Delivery[], sent: Set<number>): Stop[] {
  for (const place of places) {
    const answer = answers[place]
    if (answer === 'sent') sent.add(place)
    else return [stopAt(place, answer)]
  }
  return []
}

function stopAt(place: number, given: Delivery | null | undefined): Stop {
  const answer = given ?? undefined
  if (typeof answer === 'object' && 'refused' in answer) {
    return { place, reason: clean(answer.refused), blamed: true, failed: false, retryAfterMs: 0 }
  }
  if (typeof answer === 'object' && 'failed' in answer) {
    return { place, reason: clean(answer.failed), blamed: false, failed: true, retryAfterMs: 0 }
  }
  const unknown = typeof answer === 'object' ? answer : { unknown: `the sink answered ${String(answer)}` }
  const { retryAfterMs: after = 0 } = unknown
  const retryAfterMs = after > 0 ? Math.min(after, LONGEST_RETRY_AFTER_MS) : 0
  return { place, reason: clean(unknown.unknown), blamed: false, failed: false, retryAfterMs }
}

async function sendAlone(
  sink: Sink,
  events: readonly OutboxEvent[],
  places: readonly number[],
  context: BatchContext,
  sent: Set<number>,
): Promise<Stop[]> {
  const together = await ask(
    sink,
    places.map((place) => events[place] as OutboxEvent),
    context,
  )
  if (Array.isArray(together)) return readStream(places, spread(places, together as readonly Delivery[]), sent)
  const [only] = places
  if (places.length === 1) return [thrownAt(only as number, (together as { thrown: unknown }).thrown)]
  for (const place of places) {
    if (context.signal.aborted) return [thrownAt(place, context.signal.reason)]
    const answers = await ask(sink, [events[place] as OutboxEvent], context)
    if (!Array.isArray(answers)) return [thrownAt(place, (answers as { thrown: unknown }).thrown)]
    const stopped = readStream([place], spread([place], answers as readonly Delivery[]), sent)
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

function thrownAt(place: number, thrown: unknown): Stop {
  const reason = clean(thrown instanceof Error ? thrown.message : String(thrown))
  return { place, reason, blamed: false, failed: true, retryAfterMs: 0 }
}

const MAX_REASON = 1000

/** Fit for the table of those that wait: PostgreSQL takes neither a zero nor half a character there. */
function clean(reason: unknown): string {
  return String(reason).slice(0, MAX_REASON).replaceAll('\0', '').toWellFormed()
}
