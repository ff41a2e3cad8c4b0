import { randomUUID } from 'node:crypto'
import { nameOf } from '../events/index.ts'
import type { Statement } from '../postgres/index.ts'
import type { PreparedEvent } from './event.ts'
import { appendEvent, appendEventAt, appendEvents, lockStreams } from './outbox.sql.ts'

/** The last numbers of declared streams, read under their locks before the transaction's snapshot; they are counted on. */
export type StreamNumbers = ReadonlyMap<string, number>

/** How many events one statement writes: more would only take more memory on both sides. */
const CHUNK = 5000

/**
 * The statements that write a transaction's events. Sent right before COMMIT, so that no stream is locked for longer than that takes.
 * Several statements lock everything first: in pieces it would come out of order. `id` is that of a single event; null: the transaction may
 * have many such, and the server counts their streams.
 */
export function flushEvents(
  schema: string,
  events: readonly PreparedEvent[],
  numbers: StreamNumbers | undefined,
  id: string | null = randomUUID(),
): Statement[] {
  const [first] = events
  if (first === undefined) return []
  if (events.length === 1) {
    const { topic, key, json, bytes, headers, notBefore } = first
    const last = numbers?.get(nameOf(first)) ?? null
    const values = [topic, key, json, bytes, headers, last, id]
    return [
      {
        ...(notBefore === null
          ? { text: appendEvent(schema), values }
          : { text: appendEventAt(schema), values: [...values, notBefore] }),
        recurs: true,
        own: true,
      },
    ]
  }
  const statements: Statement[] = []
  const several = events.length > CHUNK
  if (several && numbers === undefined) {
    const streams = new Map(events.map((event) => [nameOf(event), event]))
    const [topics, keys] = [
      [...streams.values()].map(({ topic }) => topic),
      [...streams.values()].map(({ key }) => key),
    ]
    statements.push({ text: lockStreams(schema), values: [topics, keys], own: true })
  }
  const counted = numbers && new Map(numbers)
  for (let start = 0; start < events.length; start += CHUNK) {
    const chunk = events.slice(start, start + CHUNK)
    statements.push({
      text: appendEvents(schema),
      values: [
        chunk.map(({ topic }) => topic),
        chunk.map(({ key }) => key),
        chunk.map(({ json }) => json),
        chunk.map(({ bytes }) => bytes),
        chunk.map(({ headers }) => headers),
        several || numbers !== undefined,
        counted === undefined ? null : chunk.map((event) => counted.get(nameOf(event))),
        chunk.some(({ notBefore }) => notBefore !== null) ? chunk.map(({ notBefore }) => notBefore) : null,
      ],
      recurs: !several,
      own: true,
    })
    if (counted !== undefined) count(counted, chunk)
  }
  return statements
}

function count(numbers: Map<string, number>, events: readonly PreparedEvent[]): void {
  for (const event of events) numbers.set(nameOf(event), (numbers.get(nameOf(event)) ?? 0) + 1)
}
