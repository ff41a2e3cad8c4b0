import { checkOptions, type OptionNames } from '../checkOptions.ts'
import type { Leases } from '../leases/index.ts'
import { withConnection } from '../postgres/index.ts'
import type { Grounds } from '../transactions/index.ts'
import { checkNumber } from './checkNumber.ts'
import { outboxSegments, outboxStatus, parkedList } from './outbox.sql.ts'

/** How far one shard is. */
export interface ShardStatus {
  readonly dispatcher: string
  readonly shard: number
  /** Who has it; undefined where nobody does. */
  readonly owner: string | undefined
  readonly fence: bigint | undefined
  /** Events that were committed and are not delivered; those of parked streams are not among them. */
  readonly lagEvents: number
  /** The age of the oldest of them. */
  readonly lagMs: number
  readonly oldestUndelivered: Date | undefined
  readonly parkedStreams: number
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

export interface OutboxStatus {
  readonly shards: readonly ShardStatus[]
  readonly segments: readonly SegmentStatus[]
}

/** A stream that waits. */
export interface ParkedStream {
  readonly dispatcher: string
  readonly topic: string
  readonly key: string
  readonly state: 'parked' | 'blocked' | 'paused'
  readonly attempts: number
  readonly reason: string | undefined
  readonly since: Date
  readonly nextAttemptAt: Date | undefined
  readonly events: number
  /** The number of the event at its head. */
  readonly head: number | undefined
}

interface ShardRow {
  readonly dispatcher: string
  readonly shard: number
  readonly fence: string | null
  readonly moved_at: Date | null
  readonly parked: number
  readonly lag_events: string
  readonly oldest: Date | null
}

interface SegmentRow {
  readonly number: string
  readonly opened_at: Date
  readonly left_at: Date | null
  readonly current: string
  readonly bytes: string
}

export async function statusOf(grounds: Grounds, leases: Leases): Promise<OutboxStatus> {
  await grounds.ready()
  const { driver, quotedSchema, silence } = grounds
  const owners = new Map(
    (await leases.list({ prefix: 'Outbox:', limit: 10_000 })).map(({ key, holders }) => [key, holders[0]?.holder]),
  )
  const [shards, segments] = (await withConnection(
    driver,
    async (connection) => [
      (await connection.script(outboxStatus(quotedSchema)))[0]?.rows as unknown as ShardRow[],
      (await connection.script(outboxSegments(quotedSchema)))[0]?.rows as unknown as SegmentRow[],
    ],
    silence,
  )) as [ShardRow[], SegmentRow[]]
  return {
    shards: shards.map((row) => ({
      dispatcher: row.dispatcher,
      shard: row.shard,
      owner: owners.get(`Outbox:${row.dispatcher}:shard:${row.shard}`),
      fence: row.fence === null ? undefined : BigInt(row.fence),
      lagEvents: Number(row.lag_events),
      lagMs: row.oldest === null ? 0 : Math.max(0, Date.now() - new Date(row.oldest).getTime()),
      oldestUndelivered: row.oldest === null ? undefined : new Date(row.oldest),
      parkedStreams: row.parked,
      movedAt: row.moved_at === null ? undefined : new Date(row.moved_at),
    })),
    segments: segments.map((row) => ({
      number: Number(row.number),
      openedAt: new Date(row.opened_at),
      leftAt: row.left_at === null ? undefined : new Date(row.left_at),
      current: row.current === 'true',
      bytes: Number(row.bytes),
    })),
  }
}

interface ParkedRow {
  readonly dispatcher: string
  readonly topic: string
  readonly key: string
  readonly state: ParkedStream['state']
  readonly attempts: number
  readonly reason: string | null
  readonly since: Date
  readonly next_attempt_at: Date | null
  readonly events: number
  readonly head: string | null
}

/** What `outbox.parked()` takes. */
export interface ParkedOptions {
  readonly dispatcher?: string
  readonly limit?: number
}

const PARKED_OPTIONS: OptionNames<ParkedOptions> = { dispatcher: true, limit: true }

export async function parkedStreams(grounds: Grounds, options: ParkedOptions): Promise<ParkedStream[]> {
  checkOptions('outbox.parked()', options, PARKED_OPTIONS)
  const { dispatcher, limit = 100 } = options
  checkNumber('limit', limit, 1)
  await grounds.ready()
  const { driver, quotedSchema, silence } = grounds
  const text = parkedList(quotedSchema, dispatcher, limit)
  const [result] = await withConnection(driver, (connection) => connection.script(text), silence)
  return ((result?.rows ?? []) as unknown as ParkedRow[]).map((row) => ({
    dispatcher: row.dispatcher,
    topic: row.topic,
    key: row.key,
    state: row.state,
    attempts: row.attempts,
    reason: row.reason ?? undefined,
    since: new Date(row.since),
    nextAttemptAt: row.next_attempt_at === null ? undefined : new Date(row.next_attempt_at),
    events: row.events,
    head: row.head === null ? undefined : Number(row.head),
  }))
}
