import { type DeliveryFence, FetchedEvent } from './event.ts'

/** The events of one shard as `outbox_read()` gives them: each column has the values of all, in their order. Null where there are none. */
export interface EventColumns {
  readonly ids: string | null
  readonly topics: string
  readonly keys: string
  readonly seqs: string
  readonly uuids: string
  readonly enqueued: string
  readonly bodies: string
  readonly headers: string
  readonly flags: string
}

/** Not in any JSON text: control characters are escaped there. */
const PARTS = '\u001e'
const BYTES_FOLLOW = '\u001d'
/** Followed by a size: the event is larger than the schema's limit, and comes without its payload. */
const SIZE_FOLLOWS = '\u001c'

/** PostgreSQL counts microseconds from the year 2000 on. */
const POSTGRES_EPOCH_MS = Date.UTC(2000, 0, 1)

/** The events, and the places of those whose stream waits. */
export function eventsIn(
  columns: EventColumns,
  under: DeliveryFence,
): { events: FetchedEvent[]; waiting: Set<number> } {
  const events: FetchedEvent[] = []
  const waiting = new Set<number>()
  if (columns.ids === null) return { events, waiting }
  const [positions, seqs, times] = [numbersOf(columns.ids), numbersOf(columns.seqs), numbersOf(columns.enqueued)]
  const [topics, keys] = [JSON.parse(columns.topics) as string[], JSON.parse(columns.keys) as string[]]
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
      id: uuidAt(columns.uuids, place),
      position: positions[place] as number,
      enqueuedMs: POSTGRES_EPOCH_MS + Math.floor((times[place] as number) / 1000),
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

/** Of concatenated bigints, in hex. */
function numbersOf(hex: string): number[] {
  const bytes = Buffer.from(hex, 'hex')
  const numbers: number[] = []
  for (let at = 0; at < bytes.length; at += 8)
    numbers.push(bytes.readUInt32BE(at) * 2 ** 32 + bytes.readUInt32BE(at + 4))
  return numbers
}

/** Of concatenated uuids, in hex. Its pieces are too short for V8 to keep them as references into the whole text. */
function uuidAt(hex: string, place: number): string {
  const at = place * 32
  const [low, mid, high] = [hex.slice(at, at + 8), hex.slice(at + 8, at + 12), hex.slice(at + 12, at + 16)]
  return `${low}-${mid}-${high}-${hex.slice(at + 16, at + 20)}-${hex.slice(at + 20, at + 32)}`
}
