import { type DeliveryFence, FetchedEvent } from './event.ts'

/** The events of one shard as `outbox_read()` gives them: each column has the values of all, in their order. Null where there are none. */
export interface EventColumns {
  readonly ids: string | null
  readonly topics: string
  readonly keys: string
  readonly seqs: string
  readonly uuids: string
  readonly enqueued_ms: string
  readonly bodies: string
  readonly headers: string
  readonly flags: string
}

/** Not in any JSON text: control characters are escaped there. */
const PARTS = '\u001e'
const BYTES_FOLLOW = '\u001d'
/** Followed by a size: the event is larger than the schema's limit, and comes without its payload. */
const SIZE_FOLLOWS = '\u001c'

/** The events, and the places of those whose stream waits. */
export function eventsIn(
  columns: EventColumns,
  under: DeliveryFence,
): { events: FetchedEvent[]; waiting: Set<number> } {
  const events: FetchedEvent[] = []
  const waiting = new Set<number>()
  if (columns.ids === null) return { events, waiting }
  const [positions, seqs, times] = [numbersOf(columns.ids), numbersOf(columns.seqs), numbersOf(columns.enqueued_ms)]
  const [topics, keys] = [JSON.parse(columns.topics) as string[], JSON.parse(columns.keys) as string[]]
  // Not pieces of one text: an id that somebody keeps would keep all of them.
  const ids = JSON.parse(`["${columns.uuids.slice(1, -1).replaceAll(',', '","')}"]`) as string[]
  const [bodies, headers] = [columns.bodies.split(PARTS), columns.headers.split(PARTS)]
  for (let place = 0; place < positions.length; place++) {
    const flag = columns.flags[place]
    if (flag === 'w' || flag === 'b') waiting.add(place)
    const body = bodies[place] as string
    const hex = body.startsWith(BYTES_FOLLOW) ? body.slice(1) : null
    const unreadableBytes = body.startsWith(SIZE_FOLLOWS) ? Number(body.slice(1)) : undefined
    const values = {
      topic: topics[place] as string,
      key: keys[place] as string,
      seq: seqs[place] as number,
      id: ids[place] as string,
      position: positions[place] as number,
      enqueuedMs: times[place] as number,
      json: hex === null && unreadableBytes === undefined && body !== '' ? body : null,
      hex,
      headers: headers[place] || null,
      tombstone: flag === 'e' || flag === 'b' ? ('erased' as const) : undefined,
      unreadableBytes,
    }
    events.push(new FetchedEvent(values, under))
  }
  return { events, waiting }
}

/** Of an array as PostgreSQL writes it. */
function numbersOf(array: string): number[] {
  return JSON.parse(`[${array.slice(1, -1)}]`) as number[]
}
