import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { Leases } from '../leases/index.ts'
import type { Key } from '../locks/index.ts'
import { type Connection, withConnection } from '../postgres/index.ts'
import type { LockstepContext } from '../transactions/index.ts'
import { checkNumber } from './checkNumber.ts'
import { resultRows } from './resultRows.ts'
import {
  dispatcherList,
  heldStreams,
  outboxLag,
  outboxSegments,
  outboxStatus,
  parkedList,
  restingShards,
} from './outbox.sql.ts'

/** How far one shard is. */
export interface ShardStatus {
  readonly dispatcher: string
  readonly shard: number
  /** The owner; undefined if it has none. */
  readonly owner: string | undefined
  readonly fence: bigint | undefined
  /**
   * Events that were committed and are not delivered; those of parked streams are not among them. Counted where they are few, otherwise
   * estimated: its cost has an upper limit.
   */
  readonly lagEvents: number
  /** Whether `lagEvents` is an estimate. */
  readonly lagEstimated: boolean
  /** The age of the oldest of them. */
  readonly lagMs: number
  readonly oldestUndelivered: Date | undefined
  /** Streams that wait for another try, or for an operator. */
  readonly parkedStreams: number
  /** Streams that are held until a time: see `notBefore`. */
  readonly heldStreams: number
  /** When the next of them is due. */
  readonly nextHeldAt: Date | undefined
  readonly movedAt: Date | undefined
}

/** A part of the events that is kept or dropped as a whole. */
export interface SegmentStatus {
  readonly number: number
  readonly openedAt: Date
  readonly leftAt: Date | undefined
  readonly current: boolean
  readonly bytes: number
}

/** What one dispatcher delivers. */
export interface DispatcherStatus {
  readonly name: string
  /** Its topics; undefined: all. */
  readonly topics: readonly string[] | undefined
  /** Every event with a larger position is under this list. 0: it begins with the oldest event. */
  readonly topicsAfter: number
}

export interface OutboxStatus {
  readonly dispatchers: readonly DispatcherStatus[]
  readonly shards: readonly ShardStatus[]
  readonly segments: readonly SegmentStatus[]
}

/** What one dispatcher has not delivered yet, in all its shards. */
export interface DispatcherLag {
  /** Events that were committed and are not delivered; those of parked streams are not among them. */
  readonly events: number
  /** Whether `events` is an estimate: then there are many. */
  readonly estimated: boolean
  /** The age of the oldest of them. */
  readonly lagMs: number
  /** Streams that wait: for another try, or for an operator. */
  readonly parkedStreams: number
}

/** A stream that waits: for another try (`parked`), for a time (`held`), or for an operator. */
export interface ParkedStream {
  readonly dispatcher: string
  readonly topic: string
  readonly key: string
  readonly state: 'parked' | 'held' | 'blocked' | 'paused'
  readonly attempts: number
  readonly reason: string | undefined
  readonly since: Date
  /** Of a stream that is held: until when. */
  readonly nextAttemptAt: Date | undefined
  readonly events: number
  /** The number of the event at its head. */
  readonly head: number | undefined
  /** Its id: after an asynchronous failover another event can have the number. */
  readonly headId: string | undefined
}

/** As the database has it. */
export interface ShardRow {
  readonly dispatcher: string
  readonly shard: string
  readonly fence: string | null
  readonly moved_ms: string | null
  readonly parked: string
  readonly lag_events: string
  readonly lag_exact: string
  readonly oldest_ms: string | null
}

/** The streams of a shard that are held until a time. */
export interface HeldStreams {
  readonly dispatcher: string
  readonly streams: number
  readonly nextAt: Date
}

interface LagRow {
  readonly shards: string
  readonly events: string
  readonly exact: string | null
  readonly oldest_ms: string | null
  readonly parked: string
}

interface DispatcherRow {
  readonly name: string
  readonly topics: string | null
  readonly topics_after: string
}

interface SegmentRow {
  readonly number: string
  readonly opened_ms: string
  readonly left_ms: string | null
  readonly current: string
  readonly bytes: string
}

/** How far the shards of all dispatchers are. */
export function shardsOf({ driver, quotedSchema, silence }: LockstepContext): Promise<ShardRow[]> {
  const ask = async (connection: Connection): Promise<ShardRow[]> =>
    (await connection.script(outboxStatus(quotedSchema)))[0]?.rows as unknown as ShardRow[]
  return withConnection(driver, ask, silence)
}

/** By dispatcher and shard: `default:3`. */
export async function heldOf({ driver, quotedSchema, silence }: LockstepContext): Promise<Map<string, HeldStreams>> {
  const results = await withConnection(driver, (connection) => connection.script(heldStreams(quotedSchema)), silence)
  return new Map(
    resultRows(results).map(({ dispatcher, shard, streams, next_ms: next }) => [
      `${dispatcher}:${shard}`,
      { dispatcher: String(dispatcher), streams: Number(streams), nextAt: new Date(Number(next)) },
    ]),
  )
}

export async function statusOf(context: LockstepContext, leases: Leases): Promise<OutboxStatus> {
  await context.ready()
  const { driver, quotedSchema, silence } = context
  const owners = new Map(
    (await leases.list({ prefix: 'Outbox:', limit: 10_000 })).map(({ key, holders }) => [key, holders[0]?.holder]),
  )
  // A schema that is not migrated yet has none.
  const resting = await withConnection(
    driver,
    (connection) => connection.script(restingShards(quotedSchema)),
    silence,
  ).catch(() => [])
  for (const { name, holder } of resting.flatMap(({ rows }) => rows)) owners.set(name as Key, `${holder} (resting)`)
  const shards = await shardsOf(context)
  const held = await heldOf(context)
  const [dispatchers, segments] = (await withConnection(
    driver,
    async (connection) => [
      (await connection.script(dispatcherList(quotedSchema)))[0]?.rows as unknown as DispatcherRow[],
      (await connection.script(outboxSegments(quotedSchema)))[0]?.rows as unknown as SegmentRow[],
    ],
    silence,
  )) as [DispatcherRow[], SegmentRow[]]
  return {
    dispatchers: dispatchers.map(({ name, topics, topics_after: after }) => ({
      name,
      topics: topics === null ? undefined : (JSON.parse(topics) as string[]),
      topicsAfter: Number(after),
    })),
    shards: shards.map((row) => ({
      dispatcher: row.dispatcher,
      shard: Number(row.shard),
      owner: owners.get(`Outbox:${row.dispatcher}:shard:${row.shard}`),
      fence: row.fence === null ? undefined : BigInt(row.fence),
      lagEvents: Number(row.lag_events),
      lagEstimated: row.lag_exact !== 'true',
      lagMs: lagMsSince(row.oldest_ms),
      oldestUndelivered: dateOf(row.oldest_ms),
      parkedStreams: Number(row.parked),
      heldStreams: held.get(`${row.dispatcher}:${row.shard}`)?.streams ?? 0,
      nextHeldAt: held.get(`${row.dispatcher}:${row.shard}`)?.nextAt,
      movedAt: dateOf(row.moved_ms),
    })),
    segments: segments.map((row) => ({
      number: Number(row.number),
      openedAt: new Date(Number(row.opened_ms)),
      leftAt: dateOf(row.left_ms),
      current: row.current === 'true',
      bytes: Number(row.bytes),
    })),
  }
}

export async function lagOf(context: LockstepContext, dispatcher: string): Promise<DispatcherLag> {
  await context.ready()
  const { driver, quotedSchema, silence } = context
  const text = outboxLag(quotedSchema, dispatcher)
  const results = await withConnection(driver, (connection) => connection.script(text), silence)
  const [row] = resultRows(results) as unknown as LagRow[]
  if (row === undefined || row.shards === '0') {
    throw new InvalidOptionError(`There is no dispatcher ${dispatcher}.`, {
      advice: 'It exists once it has run for the first time. Look at `npx pg-lockstep outbox status`.',
    })
  }
  return {
    events: Number(row.events),
    estimated: row.exact !== 'true',
    lagMs: lagMsSince(row.oldest_ms),
    parkedStreams: Number(row.parked),
  }
}

export interface ParkedRow {
  readonly dispatcher: string
  readonly topic: string
  readonly key: string
  readonly state: ParkedStream['state']
  readonly attempts: string
  readonly reason: string | null
  readonly since_ms: string
  readonly next_attempt_ms: string | null
  readonly events: string
  readonly head: string | null
  readonly head_id: string | null
}

function lagMsSince(oldestMs: string | null): number {
  return oldestMs === null ? 0 : Math.max(0, Date.now() - Math.floor(Number(oldestMs)))
}

function dateOf(milliseconds: string | null): Date | undefined {
  return milliseconds === null ? undefined : new Date(Number(milliseconds))
}

/** What `outbox.parked()` takes. */
export interface ParkedOptions {
  readonly dispatcher?: string
  readonly limit?: number
}

const PARKED_OPTIONS: OptionNames<ParkedOptions> = { dispatcher: true, limit: true }

export async function parkedStreams(context: LockstepContext, options: ParkedOptions): Promise<ParkedStream[]> {
  checkOptions('outbox.parked()', options, PARKED_OPTIONS)
  const { dispatcher, limit = 100 } = options
  checkNumber('limit', limit, 1)
  await context.ready()
  const { driver, quotedSchema, silence } = context
  const text = parkedList(quotedSchema, dispatcher, limit)
  const results = await withConnection(driver, (connection) => connection.script(text), silence)
  return (resultRows(results) as unknown as ParkedRow[]).map(parkedStreamOf)
}

export function parkedStreamOf(row: ParkedRow): ParkedStream {
  return {
    dispatcher: row.dispatcher,
    topic: row.topic,
    key: row.key,
    state: row.state,
    attempts: Number(row.attempts),
    reason: row.reason ?? undefined,
    since: new Date(Number(row.since_ms)),
    nextAttemptAt: dateOf(row.next_attempt_ms),
    events: Number(row.events),
    head: row.head === null ? undefined : Number(row.head),
    headId: row.head_id ?? undefined,
  }
}
