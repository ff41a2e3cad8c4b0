/** The SQL that the console asks beside the library's own lists. Schema names arrive here already quoted; all it gets is text. */

/** What the overview needs of the moment. Counters only grow: a rate is the difference of two. */
export interface PulseRow {
  /** Milliseconds since 1970, by the server's clock. */
  readonly at: string
  readonly commits: string
  readonly rollbacks: string
  /** How many events have been given a place in the outbox. */
  readonly position: string
  readonly connections: string
  readonly max_connections: string
  readonly locks_held: string
  readonly lock_waiters: string
  readonly longest_wait: string
}

/** The functions behind pg_stat_database, for one database: the view reads every counter of every database. */
export function pulse(schema: string): string {
  return `
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::text AS at,
           pg_stat_get_db_xact_commit(here.oid)::text AS commits, pg_stat_get_db_xact_rollback(here.oid)::text AS rollbacks,
           (${position(schema)}) AS position,
           (SELECT sum(pg_stat_get_db_numbackends(oid)) FROM pg_database)::text AS connections,
           current_setting('max_connections') AS max_connections, locks.*
      FROM (SELECT oid FROM pg_database WHERE datname = current_database()) AS here
      CROSS JOIN LATERAL (
        SELECT count(DISTINCT (classid::bigint << 32) | objid::bigint) FILTER (WHERE granted)::text AS locks_held,
               count(*) FILTER (WHERE NOT granted)::text AS lock_waiters,
               floor(greatest(0, extract(epoch FROM clock_timestamp() - min(waitstart) FILTER (WHERE NOT granted))) * 1000)::text
                 AS longest_wait
          FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND database = here.oid) AS locks`
}

/** The last place that was given out, of the outbox's sequence. */
export function position(schema: string): string {
  return `SELECT ${schema}.outbox_position()::text AS position`
}

export interface LeaseCountsRow {
  readonly held: string
  readonly waiting: string
  /** Held or waited for. */
  readonly names: string
}

export function leaseCounts(schema: string): string {
  return `SELECT held::text AS held, waiting::text AS waiting, names::text AS names FROM ${schema}.lease_counts()`
}

/** What it takes to ask at all: the way there and back, and the time until the server responds. */
export const PING = `SELECT '' AS nothing`

export interface ServerRow {
  readonly database: string
  readonly version: string
}

export const SERVER = `SELECT current_database()::text AS database, current_setting('server_version') AS version`

export interface HeadRow {
  readonly seq: string
  readonly id: string
  readonly enqueued: string
  readonly headers: string | null
  readonly tombstone: string | null
  readonly size: string | null
  /** Null where it is larger than was asked for, or bytes. */
  readonly payload: string | null
  readonly hex: string | null
}

/** The event at the head of a stream that waits. $1 dispatcher, $2 topic, $3 key. What is larger than the bound stays where it is. */
export function headOfStream(schema: string, maxBytes: number): string {
  return `
    SELECT seq::text AS seq, uuid::text AS id, floor(extract(epoch FROM enqueued_at) * 1000)::text AS enqueued,
           headers::text AS headers, tombstone, size::text AS size, payload, hex
      FROM ${schema}.outbox_head($1::text, $2::text, $3::text, ${maxBytes})`
}

/** A server epoch, as `epoch_list()` gives it. */
export interface EpochRow {
  readonly history: string
  readonly generation: string
  readonly kind: 'first' | 'restart' | 'timeline' | 'copy'
  readonly timeline: string
  readonly address: string | null
  readonly began_ms: string
  readonly last_known_ms: string | null
  readonly grants_ms: string | null
}
