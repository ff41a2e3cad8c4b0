import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { StatementResult, TextRow } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { type BoundedRead, boundedRead } from './boundedRead.ts'
import { checkNumber } from './checkNumber.ts'
import { decodeCursor, encodeCursor } from './pageCursor.ts'
import { onPrimary } from './onPrimary.ts'
import { audited, checkReason, type OperatorOptions } from './operatorOptions.ts'
import { deadLetterPage, parkedPage, redriveDead, redriveParked, type WaitingFilter } from './outbox.sql.ts'
import { resultRows } from './resultRows.ts'
import { type ParkedStream, type ParkedRow, parkedStreamOf } from './status.ts'

/** An event that was given up, without its payload. */
export interface DeadLetter {
  readonly dispatcher: string
  readonly topic: string
  readonly key: string
  /** Its number, which went out as a tombstone. */
  readonly seq: number
  readonly id: string
  readonly enqueuedAt: Date
  readonly diedAt: Date
  readonly reason: string | undefined
  /** How large it is at least, as it is stored. */
  readonly storedBytes: number
  /** Whether it can be enqueued again. Not so what was erased, is larger than `maxEventBytes`, or has malformed headers. */
  readonly usable: boolean
}

/** Which dead letters, or which streams that wait. All of these have to fit. */
export interface WaitingSelection {
  readonly topic?: string
  readonly key?: string
  /** Ids of dead letters, or of the events at the heads of streams. */
  readonly ids?: readonly string[]
  /** A part of the reason, in whichever case. */
  readonly error?: string
}

/** What `outbox.deadLetters()` takes. */
export interface DeadLetterOptions extends WaitingSelection {
  /** Default: all. */
  readonly dispatcher?: string
  /** How many a page. Default 100. */
  readonly limit?: number
  /** `next` of the page before. */
  readonly cursor?: string
  /** The server ends the search after that time. Default: its own `statement_timeout`. */
  readonly timeoutMs?: number
}

/** Some dead letters, in the order of dispatchers and streams. */
export interface DeadLetterPage {
  readonly deadLetters: readonly DeadLetter[]
  /** The cursor of the next page; undefined: there is none. */
  readonly next: string | undefined
}

/** What `outbox.redrive()` takes. */
export interface RedriveOptions extends WaitingSelection, OperatorOptions {
  /** Default `default`. */
  readonly dispatcher?: string
  /** Selects all of them. Required if there is no other selection. */
  readonly all?: boolean
  /** The maximum number. Default 1,000. */
  readonly limit?: number
  /** Shows what it would redrive, and changes nothing. Default false. */
  readonly preview?: boolean
  /** The server ends each search for what to redrive after that time. Default: its own `statement_timeout`. */
  readonly timeoutMs?: number
}

/** What was redriven, or would be. */
export interface Redriven<Item> {
  /** How many streams are due now, or how many dead letters were enqueued again. 0 in a preview. */
  readonly redriven: number
  readonly found: readonly Item[]
  /** Whether there are more than `limit`. */
  readonly more: boolean
}

const DEAD_LETTER_OPTIONS: OptionNames<DeadLetterOptions> = {
  topic: 'never undefined',
  key: 'never undefined',
  ids: 'never undefined',
  error: 'never undefined',
  dispatcher: true,
  limit: true,
  cursor: true,
  timeoutMs: true,
}

/** A filter that is undefined by mistake would select everything. */
const REDRIVE_OPTIONS: OptionNames<RedriveOptions> = {
  topic: 'never undefined',
  key: 'never undefined',
  ids: 'never undefined',
  error: 'never undefined',
  dispatcher: true,
  all: true,
  limit: true,
  preview: true,
  timeoutMs: true,
  reason: true,
  by: true,
}

/** How many in one transaction: from the 101st stream on, whole groups would be locked. */
const AT_ONCE = 100
const MOST = 100_000
const MOST_IDS = 10_000
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i

type Filter = WaitingFilter

function filterOf(verb: string, dispatcher: string | undefined, options: WaitingSelection): Filter {
  const { topic, key, ids, error } = options
  for (const [name, value] of Object.entries({ dispatcher, topic, key, error })) {
    if (value === undefined || (typeof value === 'string' && value !== '')) continue
    throw new InvalidOptionError(`outbox.${verb}() was given ${name}: ${JSON.stringify(value)}.`, {
      advice: 'Pass a text that is not empty.',
    })
  }
  if (key !== undefined && topic === undefined) {
    throw new InvalidOptionError(`outbox.${verb}() was given a key and no topic.`, {
      advice: 'A stream is topic and key: name both.',
    })
  }
  if (ids !== undefined) {
    const wrong = Array.isArray(ids) ? ids.find((id) => typeof id !== 'string' || !UUID.test(id)) : String(ids)
    if (wrong !== undefined || ids.length > MOST_IDS) {
      throw new InvalidOptionError(`outbox.${verb}() was given ids that are no list of at most ${MOST_IDS} ids.`, {
        advice: 'Pass the ids of events, such as `headId` of parked() or `id` of deadLetters().',
      })
    }
  }
  return { dispatcher, topic, key, ids, error }
}

interface DeadRow {
  readonly dispatcher: string
  readonly stream: string
  readonly topic: string
  readonly key: string
  readonly seq: string
  readonly uuid: string
  readonly enqueued_ms: string
  readonly died_ms: string
  readonly reason: string | null
  readonly stored: string
  readonly usable: string
}

function deadLetterOf(row: DeadRow): DeadLetter {
  return {
    dispatcher: row.dispatcher,
    topic: row.topic,
    key: row.key,
    seq: Number(row.seq),
    id: row.uuid,
    enqueuedAt: new Date(Math.floor(Number(row.enqueued_ms))),
    diedAt: new Date(Math.floor(Number(row.died_ms))),
    reason: row.reason ?? undefined,
    storedBytes: Number(row.stored),
    usable: row.usable === 'true',
  }
}

type AfterDead = readonly [dispatcher: string, stream: string, seq: string]

const afterDead = ({ dispatcher, stream, seq }: DeadRow): AfterDead => [dispatcher, stream, seq]

export async function deadLetters(context: LockstepContext, options: DeadLetterOptions): Promise<DeadLetterPage> {
  checkOptions('outbox.deadLetters()', options, DEAD_LETTER_OPTIONS)
  const { limit = 100, cursor } = options
  checkNumber('limit', limit, 1, 10_000)
  const filter = filterOf('deadLetters', options.dispatcher, options)
  const after = cursor === undefined ? undefined : readDeadCursor(cursor)
  await context.ready()
  const text = deadLetterPage(context.quotedSchema, filter, after, limit + 1)
  const rows = resultRows(await boundedRead(context, options.timeoutMs)(text)) as unknown as DeadRow[]
  const last = rows.length > limit ? rows[limit - 1] : undefined
  return {
    deadLetters: rows.slice(0, limit).map(deadLetterOf),
    next: last === undefined ? undefined : encodeCursor('dead', afterDead(last)),
  }
}

function readDeadCursor(cursor: string): AfterDead {
  const [dispatcher, stream, seq] = decodeCursor('outbox.deadLetters()', 'dead', cursor, 3)
  if (dispatcher !== undefined && UUID.test(stream ?? '') && /^\d{1,18}$/.test(seq ?? '')) {
    return [dispatcher, stream as string, seq as string]
  }
  throw new InvalidOptionError('outbox.deadLetters() was given a cursor that it did not return.', {
    advice: 'Pass `next` of the page before, as it is.',
  })
}

/** One kind of what can be redriven: how a page is found behind a row, and what is done with it. */
interface Kind<Row, Item> {
  find(after: Row | undefined, most: number): string
  item(row: Row): Item
  /** Gives how many were redriven. */
  act(rows: readonly Row[]): Promise<number>
}

export async function redrive(
  context: LockstepContext,
  what: 'parked' | 'dead',
  options: RedriveOptions,
): Promise<Redriven<ParkedStream | DeadLetter>> {
  if (what !== 'parked' && what !== 'dead') {
    throw new InvalidOptionError(`outbox.redrive() was given ${JSON.stringify(what)}.`, {
      advice: "Use 'parked' for streams that wait, or 'dead' for dead letters.",
    })
  }
  checkOptions('outbox.redrive()', options, REDRIVE_OPTIONS)
  const { dispatcher = 'default', limit = 1000, preview = false, all = false } = options
  checkNumber('limit', limit, 1, MOST)
  const filter = filterOf('redrive', dispatcher, options)
  const selects = [filter.topic, filter.ids, filter.error].some((each) => each !== undefined)
  if (selects === all) {
    throw new InvalidOptionError(
      all ? 'outbox.redrive() has `all` and a selection.' : 'outbox.redrive() has no selection.',
      { advice: 'Select by `ids`, `topic` or `error`, or pass `all: true`.' },
    )
  }
  if (!preview) checkReason('redrive', options.reason)
  const who = audited(options)
  await context.ready()
  const { quotedSchema } = context
  const change = async (text: string): Promise<TextRow | undefined> =>
    resultRows(
      await onPrimary(context, (connection): Promise<StatementResult<TextRow>[]> => connection.script(text)),
    )[0]

  const parked: Kind<ParkedRow & { readonly stream: string }, ParkedStream> = {
    find: (after, most) => parkedPage(quotedSchema, { ...filter, dispatcher }, after?.stream, most),
    item: (row) => parkedStreamOf({ ...row, dispatcher }),
    async act(rows) {
      const streams = rows.map(({ stream }) => stream)
      const due = async (some: readonly string[]): Promise<string[]> =>
        JSON.parse((await change(redriveParked(quotedSchema, dispatcher, some, who)))?.['streams'] ?? '[]') as string[]
      const done = new Set(await due(streams))
      // A session was busy with these: each is waited for, by itself.
      for (const stream of streams) if (!done.has(stream)) for (const each of await due([stream])) done.add(each)
      return done.size
    },
  }
  const dead: Kind<DeadRow, DeadLetter> = {
    find: (after, most) =>
      deadLetterPage(quotedSchema, { ...filter, dispatcher }, after === undefined ? undefined : afterDead(after), most),
    item: deadLetterOf,
    async act(rows) {
      const usable = rows.filter((row) => row.usable === 'true')
      if (usable.length === 0) return 0
      return Number((await change(redriveDead(quotedSchema, dispatcher, usable, who)))?.['redriven'] ?? 0)
    },
  }
  const read = boundedRead(context, options.timeoutMs)
  return what === 'parked' ? pages(read, parked, { limit, preview }) : pages(read, dead, { limit, preview })
}

/** Page by page, each in a transaction of its own: what was redriven stays so if a later page fails. */
async function pages<Row, Item>(
  read: BoundedRead,
  kind: Kind<Row, Item>,
  { limit, preview }: { limit: number; preview: boolean },
): Promise<Redriven<Item>> {
  const found: Item[] = []
  let redriven = 0
  for (let after: Row | undefined; ;) {
    const most = Math.min(AT_ONCE, limit - found.length)
    const rows = resultRows(await read(kind.find(after, most + 1))) as unknown as Row[]
    const page = rows.slice(0, most)
    after = page.at(-1)
    if (!preview && page.length > 0) redriven += await kind.act(page)
    found.push(...page.map((row) => kind.item(row)))
    const more = rows.length > most
    if (!more || found.length >= limit) return { redriven, found, more }
  }
}
