import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import { withConnection } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { type BoundedRead, boundedRead } from './boundedRead.ts'
import { checkNumber } from './checkNumber.ts'
import { type EventRow, FetchedEvent } from './event.ts'
import { Generations } from './generations.ts'
import {
  type EventWindow,
  eventsBetween,
  eventsOf,
  eventsWithHeader,
  type HeaderSearch,
  payloadsOf,
  positionsOf,
} from './outbox.sql.ts'
import { decodeCursor, encodeCursor } from './pageCursor.ts'

/** What `outbox.events()` takes: which retained events, and how many. */
export interface EventsOptions {
  readonly topic?: string
  /** With `topic`: events of one stream, found by its index. Without `topic`, at most `maxScanned` events are read. */
  readonly key?: string
  /** The first and the last number, of one stream. */
  readonly fromSeq?: number
  readonly toSeq?: number
  /** Enqueued at this time or later, and before this time. */
  readonly from?: Date
  readonly to?: Date
  /**
   * Only events with exactly this value of this header. Only an operator can read headers. At most `maxScanned` events are read, also of
   * one stream.
   */
  readonly header?: { readonly name: string; readonly value: string }
  /** Default: the oldest first. */
  readonly newestFirst?: boolean
  /** The maximum number on a page. Default 100. */
  readonly limit?: number
  /**
   * The maximum number of events that are read for a page. So a page can have fewer than `limit`, or none, and still have a next one.
   * Default 100,000.
   */
  readonly maxScanned?: number
  /** `next` of the previous page. */
  readonly cursor?: string
  /** Whether to return payloads and headers. Only an operator can read them. Default false. */
  readonly payloads?: boolean
  /** The server ends each statement of the search after that time. Default: its own `statement_timeout`. */
  readonly timeoutMs?: number
}

/** A retained event. */
export interface StoredEvent {
  readonly topic: string
  readonly key: string
  readonly seq: number
  readonly id: string
  readonly position: number
  readonly enqueuedAt: Date
  /** Its payload was erased. */
  readonly erased: boolean
  /** How large it is at least, as it is stored. */
  readonly storedBytes: number
  /** With `payloads`: as it was enqueued. Undefined also where it was erased or is larger than `maxEventBytes`. */
  readonly payload?: unknown
  readonly headers?: Readonly<Record<string, string>>
}

export interface EventPage {
  readonly events: readonly StoredEvent[]
  /** The cursor of the next page; undefined: there is none. */
  readonly next: string | undefined
  /** The number of positions that were searched. */
  readonly scanned: number
}

const EVENTS_OPTIONS: OptionNames<EventsOptions> = {
  topic: 'never undefined',
  key: 'never undefined',
  fromSeq: true,
  toSeq: true,
  from: true,
  to: true,
  header: 'never undefined',
  newestFirst: true,
  limit: true,
  maxScanned: true,
  cursor: true,
  payloads: true,
  timeoutMs: true,
}

/** How many positions one statement reads. */
const WINDOW = 10_000

interface StoredRow {
  readonly id: string | null
  readonly seq: string
  readonly topic: string
  readonly key: string
  readonly uuid: string
  readonly enqueued_ms: string
  readonly erased: string
  readonly stored: string
}

/** What was found, and where the next page begins: a number of the stream, or a position. */
interface Found {
  readonly events: StoredEvent[]
  readonly scanned: number
  readonly goOn: number | undefined
}

/** Reads retained events for people. Nothing says that it sees all: what an open transaction adds later can have smaller positions. */
export async function storedEvents(context: LockstepContext, options: EventsOptions): Promise<EventPage> {
  checkOptions('outbox.events()', options, EVENTS_OPTIONS)
  const { topic, key, limit = 100, maxScanned = 100_000, newestFirst = false, cursor } = options
  checkNumber('limit', limit, 1, 10_000)
  checkNumber('maxScanned', maxScanned, 1, 10_000_000)
  checkNumber('fromSeq', options.fromSeq ?? 1, 1)
  checkNumber('toSeq', options.toSeq ?? 1, 1)
  checkTime('from', options.from)
  checkTime('to', options.to)
  if (options.from !== undefined && options.to !== undefined && options.from > options.to) {
    throw new InvalidOptionError('`from` is later than `to`.', { advice: 'Swap them.' })
  }
  if (key === undefined ? options.fromSeq !== undefined || options.toSeq !== undefined : topic === undefined) {
    throw new InvalidOptionError('outbox.events() was given numbers without a stream, or a key without a topic.', {
      advice: 'A stream is topic and key: name both.',
    })
  }
  const header = checkHeader(options.header)
  // A search by a header goes through positions, also that of one stream.
  const kind = key === undefined || header !== undefined ? 'position' : 'seq'
  const [place] = cursor === undefined ? [undefined] : decodeCursor('outbox.events()', kind, cursor, 1)
  const goOn = place === undefined ? undefined : checkNumber('cursor', Number(place), 0)
  await context.ready()
  const { quotedSchema } = context
  const ask = boundedRead(context, options.timeoutMs)
  const window: EventWindow = { topic, from: options.from, to: options.to, newestFirst }
  const search = header && { key, fromSeq: options.fromSeq, toSeq: options.toSeq, header }
  const asked = { ask, schema: quotedSchema, window, search, limit, maxScanned }
  const found =
    topic !== undefined && key !== undefined && search === undefined
      ? await ofStream(asked, { topic, key }, options, goOn)
      : await ofPositions(asked, goOn)
  const { events, next } =
    options.payloads === true
      ? await withPayloads(context, asked, found, kind)
      : { events: found.events, next: found.goOn }
  return {
    events,
    next: next === undefined ? undefined : encodeCursor(kind, [String(next)]),
    scanned: found.scanned,
  }
}

interface Asked {
  readonly ask: BoundedRead
  readonly schema: string
  readonly window: EventWindow
  readonly search: HeaderSearch | undefined
  readonly limit: number
  readonly maxScanned: number
}

async function ofStream(
  { ask, schema, window, limit, maxScanned }: Asked,
  stream: { topic: string; key: string },
  { fromSeq, toSeq }: EventsOptions,
  goOn: number | undefined,
): Promise<Found> {
  const { newestFirst } = window
  const lowest = newestFirst ? fromSeq : Math.max(fromSeq ?? 1, (goOn ?? 0) + 1)
  const highest = newestFirst
    ? Math.min(toSeq ?? Number.MAX_SAFE_INTEGER, (goOn ?? Number.MAX_SAFE_INTEGER) - 1)
    : toSeq
  // One more than wanted says whether there is a next page.
  const results = await ask(eventsOf(schema, stream, lowest, highest, window, limit + 1, maxScanned))
  const rows = (results[0]?.rows ?? []) as unknown as (StoredRow & { scanned: string; last_seq: string | null })[]
  const all = rows.filter(({ id }) => id !== null).map(storedEventOf)
  const scanned = Number(rows[0]?.scanned ?? 0)
  const events = all.slice(0, limit)
  const cut = all.length > limit ? events.at(-1)?.seq : undefined
  const last = rows[0]?.last_seq
  return { events, scanned, goOn: cut ?? (scanned === maxScanned && last ? Number(last) : undefined) }
}

async function ofPositions(asked: Asked, goOn: number | undefined): Promise<Found> {
  const { ask, schema, window, search, limit, maxScanned } = asked
  const { newestFirst } = window
  const range = (await ask(positionsOf(schema, window)))[0]?.rows[0]
  let low = Number(range?.['after_id'])
  let high = Number(range?.['up_to'])
  if (goOn !== undefined && newestFirst) high = Math.min(high, goOn - 1)
  else if (goOn !== undefined) low = Math.max(low, goOn)
  const events: StoredEvent[] = []
  let scanned = 0
  while (low < high && scanned < maxScanned) {
    const width = Math.min(WINDOW, maxScanned - scanned, high - low)
    const [after, upTo] = newestFirst ? [high - width, high] : [low, low + width]
    const most = limit - events.length + 1
    const results = await ask(
      search === undefined
        ? eventsBetween(schema, after, upTo, window, most)
        : eventsWithHeader(schema, after, upTo, window, search, most),
    )
    const rows = ((results[0]?.rows ?? []) as unknown as StoredRow[]).map(storedEventOf)
    scanned += width
    events.push(...rows)
    if (events.length > limit) {
      events.length = limit
      return { events, scanned, goOn: events.at(-1)?.position }
    }
    if (newestFirst) high = after
    else low = upTo
  }
  // Backwards, a page continues below its cursor.
  return { events, scanned, goOn: low < high ? (newestFirst ? high + 1 : low) : undefined }
}

/** A page of payloads has as many as fit into a piece: then the next one begins earlier. */
async function withPayloads(
  context: LockstepContext,
  { ask, schema, window }: Asked,
  { events, goOn }: Found,
  kind: 'seq' | 'position',
): Promise<{ events: StoredEvent[]; next: number | undefined }> {
  if (events.length === 0) return { events: [], next: goOn }
  const { driver, silence } = context
  const generations = await withConnection(driver, (connection) => Generations.read(connection, schema), silence)
  const results = await ask(payloadsOf(schema, events, window.newestFirst))
  const rows = results.flatMap(({ rows: each }) => each) as unknown as EventRow[]
  const read = new Map(
    rows.map((row) => [row.event_id, FetchedEvent.ofRow(row, { fence: 0n, history: '', generations })]),
  )
  const last = events.findLastIndex(({ position }) => read.has(String(position)))
  const page = events.slice(0, last + 1).flatMap((event) => {
    const full = read.get(String(event.position))
    // Retention has removed it meanwhile.
    return full === undefined ? [] : [{ ...event, payload: full.payload, headers: full.headers }]
  })
  const cut = last + 1 < events.length && last >= 0 ? events[last] : undefined
  return { events: page, next: cut === undefined ? goOn : cut[kind] }
}

function storedEventOf(row: StoredRow): StoredEvent {
  return {
    topic: row.topic,
    key: row.key,
    seq: Number(row.seq),
    id: row.uuid,
    position: Number(row.id),
    enqueuedAt: new Date(Math.floor(Number(row.enqueued_ms))),
    erased: row.erased === 'true',
    storedBytes: Number(row.stored),
  }
}

const LONGEST_HEADER = 1000

function checkHeader(header: EventsOptions['header']): EventsOptions['header'] {
  if (header === undefined) return undefined
  const texts = [header?.name, header?.value]
  if (texts.every((text) => typeof text === 'string' && text.length <= LONGEST_HEADER) && header.name !== '')
    return header
  throw new InvalidOptionError('`header` is not a name and a value.', {
    advice: "Pass for example { name: 'trace-id', value: '4bf92f' }.",
  })
}

function checkTime(name: string, value: unknown): void {
  if (value === undefined || (value instanceof Date && !Number.isNaN(value.getTime()))) return
  throw new InvalidOptionError(`\`${name}\` is no date.`, { advice: `Pass a Date: new Date('2026-11-15T14:00:00Z').` })
}
