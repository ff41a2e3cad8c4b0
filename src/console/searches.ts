import type { EventsOptions, Key } from '../index.ts'
import { quoteIdentifier } from '../postgres/index.ts'
import { type OwnValue, readOwnRows } from './ownRows.ts'
import {
  type AuditedRow,
  findLeases,
  type FoundLeaseRow,
  inboxPositions,
  type InboxPositionRow,
  keptAnswers,
  type KeptAnswerRow,
  leasesTakenAway,
  outboxAudit,
  rolloutRules,
  type RolloutRuleRow,
} from './console.sql.ts'
import type { ConsoleLockstep } from './consoleOptions.ts'
import { refuse } from './refusals.ts'
import { RefusalError } from './responses.ts'
import type { RolloutObservations } from './rolloutObservations.ts'
import { aboutOf } from './snapshots.ts'
import type * as wire from './wire.ts'

/** The server ends a search that takes longer. */
export const SEARCH_MS = 5000
/** Rows of a page. */
const PAGE = 50
/** The number of positions of the outbox that are searched for a page: about 200 ms if none matches. */
const MAX_SCANNED = 50_000
/** As many ids fit into the body of one request. */
export const MANY = 250

type Query = URLSearchParams

/** What is asked on request, and not all the time: each bounded in time and in rows, page by page behind a cursor. */
export class Searches {
  readonly #lockstep: ConsoleLockstep
  readonly #schema: string
  readonly #observations: RolloutObservations

  constructor(lockstep: ConsoleLockstep, observations: RolloutObservations) {
    this.#lockstep = lockstep
    this.#schema = quoteIdentifier(lockstep.schema)
    this.#observations = observations
  }

  async events(query: Query, operator: boolean): Promise<wire.EventList> {
    const header = textIn(query, 'header')
    if (header !== undefined && !operator) throw new RefusalError(refuse.operatorsOnly())
    const options: EventsOptions = {
      ...given('topic', textIn(query, 'topic')),
      ...given('key', textIn(query, 'key')),
      ...given('fromSeq', numberIn(query, 'fromSeq')),
      ...given('toSeq', numberIn(query, 'toSeq')),
      ...given('from', timeIn(query, 'from')),
      ...given('to', timeIn(query, 'to')),
      ...given('cursor', textIn(query, 'cursor')),
      ...given('header', header === undefined ? undefined : { name: header, value: query.get('value') ?? '' }),
      newestFirst: query.get('newestFirst') !== 'false',
      limit: PAGE,
      maxScanned: MAX_SCANNED,
      timeoutMs: SEARCH_MS,
    }
    const { events, next, scanned } = await this.#lockstep.outbox.events(options)
    return {
      events: events.map(({ topic, key, seq, id, position, enqueuedAt, erased, storedBytes }) => ({
        topic,
        key,
        seq,
        id,
        position,
        erased,
        storedBytes,
        enqueuedAt: enqueuedAt.toISOString(),
      })),
      next: next ?? null,
      scanned,
    }
  }

  /** One event with its payload and headers. */
  async payload(query: Query, maxBytes: number): Promise<wire.Payload> {
    const [topic, key, seq] = [textIn(query, 'topic'), textIn(query, 'key'), numberIn(query, 'seq')]
    if (topic === undefined || key === undefined || seq === undefined)
      throw new RefusalError(refuse.missing('topic, key and seq'))
    const wanted = { topic, key, fromSeq: seq, toSeq: seq, limit: 1, timeoutMs: SEARCH_MS }
    const [plain] = (await this.#lockstep.outbox.events(wanted)).events
    if (plain === undefined) throw new RefusalError(refuse.noEvent())
    if (plain.erased) throw new RefusalError(refuse.noPayload('erased'))
    // By what is stored, before anything huge is unpacked.
    if (plain.storedBytes > maxBytes) throw new RefusalError(refuse.payloadTooLarge(String(plain.storedBytes)))
    const [event] = (await this.#lockstep.outbox.events({ ...wanted, payloads: true })).events
    if (event === undefined) throw new RefusalError(refuse.noEvent())
    const { payload, headers = {}, id, enqueuedAt } = event
    const bytes = payload instanceof Uint8Array ? Buffer.from(payload) : undefined
    const text = bytes === undefined ? JSON.stringify(payload) : bytes.toString('base64')
    if (text === undefined) throw new RefusalError(refuse.noPayload('gone'))
    if (text.length > maxBytes) throw new RefusalError(refuse.payloadTooLarge(String(text.length)))
    const encoding = bytes === undefined ? 'json' : 'base64'
    return { seq, id, enqueuedAt: enqueuedAt.toISOString(), headers, payload: text, encoding }
  }

  async deadLetters(query: Query): Promise<wire.DeadLetterList> {
    const { deadLetters, next } = await this.#lockstep.outbox.deadLetters({
      ...given('dispatcher', textIn(query, 'dispatcher')),
      ...selectionIn(query),
      ...given('cursor', textIn(query, 'cursor')),
      limit: PAGE,
      timeoutMs: SEARCH_MS,
    })
    return {
      deadLetters: deadLetters.map(({ enqueuedAt, diedAt, reason, ...each }) => ({
        ...each,
        enqueuedAt: enqueuedAt.toISOString(),
        diedAt: diedAt.toISOString(),
        reason: reason ?? null,
      })),
      next: next ?? null,
    }
  }

  /** What would be worked on. The page sends the ids back: what is done is what was seen. */
  async many(query: Query): Promise<wire.ManyPreview> {
    const what = query.get('what')
    const selection = selectionIn(query)
    const options = {
      ...given('dispatcher', textIn(query, 'dispatcher')),
      ...selection,
      ...(Object.keys(selection).length === 0 && { all: true }),
      limit: MANY,
      preview: true,
      timeoutMs: SEARCH_MS,
    }
    if (what === 'dead') {
      const { found, more } = await this.#lockstep.outbox.redrive('dead', options)
      return {
        what,
        found: found.map(({ id, topic, key, seq, reason, usable }) => ({
          id,
          topic,
          key,
          seq,
          usable,
          reason: reason ?? null,
        })),
        more,
      }
    }
    if (what !== 'parked') throw new RefusalError(refuse.missing('what'))
    const { found, more } = await this.#lockstep.outbox.redrive('parked', options)
    return {
      what,
      found: found.flatMap(({ headId, head, topic, key, reason }) =>
        headId === undefined || head === undefined
          ? []
          : [{ id: headId, topic, key, seq: head, reason: reason ?? null, usable: true }],
      ),
      more,
    }
  }

  /** Not limited in time: it reads what the overview reads anyway, and counts at most 10,000 positions of each. */
  async consumers(): Promise<wire.ConsumerList> {
    const consumers = await this.#lockstep.consumers.list({ waiting: 0 })
    return {
      consumers: consumers.map(
        ({ name, dispatched, topics, streams, ownerless, lagEvents, lagMs, parkedStreams }): wire.ConsumerRow => ({
          name,
          dispatched,
          topics: topics ?? null,
          streams,
          shardsWithoutOwner: ownerless,
          lagEvents,
          lagMs,
          parkedStreams,
        }),
      ),
      next: null,
    }
  }

  async inbox(query: Query): Promise<wire.InboxList> {
    const values = ['consumer', 'topic', 'key'].map((name) => textIn(query, name) ?? null)
    const rows = await this.#read<InboxPositionRow>(inboxPositions(this.#schema, PAGE + 1), [
      ...values,
      ...cursorIn(query, 3),
    ])
    const { page, last } = cut(rows)
    return {
      positions: page.map(({ consumer, topic, key, seq, uuid }) => ({
        consumer,
        topic,
        key,
        seq: Number(seq),
        id: uuid,
      })),
      next: last === undefined ? null : cursorOf([last.consumer, last.topic, last.key]),
    }
  }

  async idempotency(query: Query): Promise<wire.IdempotencyList> {
    const values = ['scope', 'prefix'].map((name) => textIn(query, name) ?? null)
    const rows = await this.#read<KeptAnswerRow>(keptAnswers(this.#schema, PAGE + 1), [
      ...values,
      ...cursorIn(query, 2),
    ])
    const { page, last } = cut(rows)
    return {
      records: page.map((row) => ({
        scope: row.scope,
        key: row.key,
        status: Number(row.status),
        bodyBytes: Number(row.body_bytes),
        createdAt: timeOf(row.created_ms),
        expiresAt: timeOf(row.expires_ms),
      })),
      next: last === undefined ? null : cursorOf([last.scope, last.key]),
    }
  }

  async rollout(): Promise<wire.RolloutList> {
    const rows = await this.#read<RolloutRuleRow>(rolloutRules(this.#schema), [])
    const prefixes = rows.map(({ prefix }) => prefix)
    return {
      rules: rows.map(({ prefix, mode, percent, reason, changed_ms: changed }) => ({
        prefix,
        mode: mode === 'percent' ? `${percent}%` : mode,
        reason,
        changedAt: timeOf(changed),
        ...this.#observations.under(prefix, prefixes),
      })),
      since: this.#observations.since.toISOString(),
    }
  }

  /** What operators did, of the outbox and of the leases, the newest first. */
  async audit(query: Query): Promise<wire.AuditList> {
    const wanted = (each: string): OwnValue => textIn(query, each) ?? null
    const [verb, topic, key, name] = [wanted('verb'), wanted('topic'), wanted('key'), wanted('name')]
    const [beforeOutbox, beforeLeases] = cursorIn(query, 2)
    const outbox = await this.#read<AuditedRow>(outboxAudit(this.#schema, PAGE + 1), [
      numeric(beforeOutbox),
      verb,
      topic,
      key,
      name,
    ])
    // A lease has no topic, and one verb.
    const leases =
      topic !== null || (verb !== null && verb !== 'release')
        ? []
        : await this.#read<AuditedRow>(leasesTakenAway(this.#schema, PAGE + 1), [numeric(beforeLeases), key, name])
    const all = [...outbox.map((row) => auditRow('outbox', row)), ...leases.map((row) => auditRow('leases', row))]
    const sorted = all.toSorted((one, other) => (one.at === other.at ? 0 : one.at < other.at ? 1 : -1))
    const entries = sorted.slice(0, PAGE)
    const lastOf = (of: wire.AuditRow['of'], before: string | null | undefined): string =>
      entries.findLast((each) => each.of === of)?.id ?? before ?? ''
    return {
      entries,
      next: all.length > PAGE ? cursorOf([lastOf('outbox', beforeOutbox), lastOf('leases', beforeLeases)]) : null,
    }
  }

  async leases(query: Query): Promise<wire.LeaseSearch> {
    const words = (query.get('q') ?? '').split(/\s+/).filter(Boolean).slice(0, 10)
    if (words.length === 0) throw new RefusalError(refuse.missing('q'))
    const rows = await this.#read<FoundLeaseRow>(findLeases(this.#schema, PAGE + 1), [JSON.stringify(words)])
    return {
      leases: rows.slice(0, PAGE).map((row) => ({
        key: row.name as Key,
        permits: Number(row.permits),
        holder: row.holder,
        about: aboutOf(row.metadata === null ? undefined : (JSON.parse(row.metadata) as Parameters<typeof aboutOf>[0])),
        slot: Number(row.slot),
        fence: row.fence,
        since: timeOf(row.acquired_ms),
        until: timeOf(row.expires_ms),
        waiters: Number(row.waiters),
      })),
      more: rows.length > PAGE,
    }
  }

  #read<Row>(text: string, values: readonly OwnValue[]): Promise<Row[]> {
    return readOwnRows<Row>(this.#lockstep, text, values, SEARCH_MS)
  }
}

function auditRow(of: wire.AuditRow['of'], row: AuditedRow): wire.AuditRow {
  return {
    of,
    id: row.id,
    at: timeOf(row.at_ms),
    verb: row.verb,
    by: row.by_name,
    role: row.by_role,
    address: row.by_address,
    dispatcher: row.dispatcher,
    topic: row.topic,
    key: row.key,
    seq: row.seq === null ? null : Number(row.seq),
    reason: row.reason,
  }
}

const timeOf = (ms: string): string => new Date(Number(ms)).toISOString()

function cut<Row>(rows: readonly Row[]): { page: readonly Row[]; last: Row | undefined } {
  return { page: rows.slice(0, PAGE), last: rows.length > PAGE ? rows[PAGE - 1] : undefined }
}

function textIn(query: Query, name: string): string | undefined {
  return query.get(name) || undefined
}

function numberIn(query: Query, name: string): number | undefined {
  const text = textIn(query, name)
  if (text === undefined) return undefined
  if (/^\d{1,15}$/.test(text)) return Number(text)
  throw new RefusalError(refuse.missing(name))
}

function timeIn(query: Query, name: string): Date | undefined {
  const text = textIn(query, name)
  if (text === undefined) return undefined
  const time = new Date(text)
  if (Number.isNaN(time.getTime())) throw new RefusalError(refuse.missing(name))
  return time
}

function selectionIn(query: Query): { readonly topic?: string; readonly key?: string; readonly error?: string } {
  return Object.fromEntries(
    ['topic', 'key', 'error'].flatMap((name) => {
      const text = textIn(query, name)
      return text === undefined ? [] : [[name, text]]
    }),
  )
}

function given<Name extends string, Value>(name: Name, value: Value | undefined): { readonly [Each in Name]?: Value } {
  return (value === undefined ? {} : { [name]: value }) as { readonly [Each in Name]?: Value }
}

function cursorOf(parts: readonly string[]): string {
  return Buffer.from(JSON.stringify(parts)).toString('base64url')
}

/** The parts of the cursor; nulls where there is none. */
function cursorIn(query: Query, length: number): (string | null)[] {
  const cursor = textIn(query, 'cursor')
  if (cursor === undefined) return Array.from({ length }, () => null)
  try {
    const parts = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown
    if (Array.isArray(parts) && parts.length === length && parts.every((part) => typeof part === 'string')) return parts
  } catch {
    // Refused below.
  }
  throw new RefusalError(refuse.missing('cursor'))
}

/** The number in a cursor; none where nothing of that kind was shown yet. */
function numeric(part: string | null | undefined): string | null {
  if (part === null || part === undefined || part === '') return null
  if (/^\d{1,18}$/.test(part)) return part
  throw new RefusalError(refuse.missing('cursor'))
}
