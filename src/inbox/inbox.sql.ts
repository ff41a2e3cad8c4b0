import { quoteLiteral } from '../postgres/index.ts'

/** The SQL of the inbox. Every value goes in and comes out as text. */

export interface AcceptRow {
  /** `gap:` is followed by the number that is expected. */
  readonly verdict: 'first' | 'duplicate' | 'tombstone' | 'diverged' | 'outdated' | `gap:${number}`
}

/** Consumer, topic, key, seq, id, tombstone, start, generation. */
export function accept(schema: string): string {
  return `
    SELECT ${schema}.inbox_accept_event($1::text, $2::text, $3::text, ($4::text)::bigint, ($5::text)::uuid, ($6::text)::boolean,
                                        ($7::text)::bigint, nullif($8::text, '')::bigint) AS verdict`
}

/** Of a run that was not simply the next one. */
export interface RunRow {
  /** From 1; null in a row that says nothing. */
  readonly place: string | null
  readonly verdict: 'accepted' | 'duplicate' | 'diverged' | 'outdated' | 'gap'
  /** The consumer's position before. */
  readonly seq: string
  /** The number from which on it is diverged or outdated. */
  readonly at: string | null
}

/** Consumer; topics, keys, first numbers and counts of the runs; the ids and generations of all; the runs' starts; idle_ms. */
export function acceptRuns(schema: string): string {
  return `
    SELECT place::text AS place, verdict, seq::text AS seq, at::text AS at FROM ${acceptBatch(schema)}`
}

/** The same in a transaction whose COMMIT is on disk when it is answered. Where the setting is made and there is no row, there is one of nulls. */
export function acceptRunsDurably(schema: string): string {
  return `
    SELECT b.place::text AS place, b.verdict, b.seq::text AS seq, b.at::text AS at
      FROM (SELECT set_config('synchronous_commit', 'on', true) AS made WHERE current_setting('synchronous_commit') = 'off') AS s
      FULL JOIN ${acceptBatch(schema)} AS b ON true`
}

function acceptBatch(schema: string): string {
  return `${schema}.inbox_accept_batch($1::text, $2::text[], $3::text[], ($4::text[])::bigint[], ($5::text[])::int[],
                                       ($6::text[])::uuid[], (array_replace($7::text[], '', NULL))::bigint[],
                                       ($8::text[])::bigint[], ($9::text)::int)`
}

/** Consumer, topic, key, seq, force. */
export function start(schema: string): string {
  return `
    SELECT ${schema}.inbox_start($1::text, $2::text, $3::text, ($4::text)::bigint, ($5::text)::boolean)::text AS started`
}

export interface PositionRow {
  readonly seq: string
  readonly uuid: string | null
}

/** Consumer, topic, key. No row where the stream has not begun. */
export function position(schema: string): string {
  return `SELECT seq::text AS seq, uuid::text AS uuid FROM ${schema}.inbox_position($1::text, $2::text, $3::text)`
}

export interface ConsumerRow {
  readonly consumer: string
  readonly streams: string
}

/** Every consumer with positions, and its number of streams, up to a limit. */
export function consumerList(schema: string, most: number): string {
  return `SELECT consumer, streams::text AS streams FROM ${schema}.inbox_consumer_list(${most})`
}

export interface ListedPositionRow extends PositionRow {
  readonly topic: string
  readonly key: string
}

/** What is asked for, checked. */
export interface PositionsRequest {
  readonly consumer: string
  readonly topic: string | undefined
  /** The stream after which it begins. */
  readonly after: { readonly topic: string; readonly key: string }
  readonly limit: number
}

/** Positions of a consumer: one more than wanted, which says whether there is a next page. */
export function positionList(schema: string, { consumer, topic, after, limit }: PositionsRequest): string {
  const names = [consumer, topic, after.topic, after.key].map((each) =>
    each === undefined ? 'NULL' : quoteLiteral(each),
  )
  return `SELECT topic, key, seq::text AS seq, uuid::text AS uuid FROM ${schema}.inbox_position_list(${names.join(', ')}, ${limit + 1})`
}
