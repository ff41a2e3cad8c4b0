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

/** No search takes longer than this at the server. */
export function limitStatements(timeoutMs: number): string {
  return `SELECT set_config('statement_timeout', '${timeoutMs}', true) AS timeout`
}

const ms = (column: string): string => `floor(extract(epoch FROM ${column}) * 1000)::text`

export interface FoundLeaseRow {
  readonly name: string
  readonly slot: string
  readonly permits: string
  readonly fence: string
  readonly holder: string
  readonly metadata: string | null
  readonly acquired_ms: string
  readonly expires_ms: string
  readonly waiters: string
}

/** Leases by words. $1: the words, as a JSON list. */
export function findLeases(schema: string, limit: number): string {
  return `
    SELECT name, slot::text AS slot, permits::text AS permits, fence::text AS fence, holder, metadata::text AS metadata,
           ${ms('acquired_at')} AS acquired_ms, ${ms('expires_at')} AS expires_ms, waiters::text AS waiters
      FROM ${schema}.lease_find(ARRAY(SELECT json_array_elements_text($1::text::json)), ${limit})`
}

export interface InboxPositionRow {
  readonly consumer: string
  readonly topic: string
  readonly key: string
  readonly seq: string
  readonly uuid: string | null
}

/** $1 consumer, $2 topic, $3 key, each or null; $4, $5, $6 the row before. */
export function inboxPositions(schema: string, limit: number): string {
  return `
    SELECT consumer, topic, key, seq::text AS seq, uuid::text AS uuid
      FROM ${schema}.inbox_list($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, ${limit})`
}

export interface KeptAnswerRow {
  readonly scope: string
  readonly key: string
  readonly status: string
  readonly body_bytes: string
  readonly created_ms: string
  readonly expires_ms: string
}

/** $1 scope, $2 the beginning of the key, each or null; $3, $4 the row before. */
export function keptAnswers(schema: string, limit: number): string {
  return `
    SELECT scope, key, status::text AS status, body_bytes::text AS body_bytes, ${ms('created_at')} AS created_ms,
           ${ms('expires_at')} AS expires_ms
      FROM ${schema}.idempotency_list($1::text, $2::text, $3::text, $4::text, ${limit})`
}

export interface RolloutRuleRow {
  readonly prefix: string
  readonly mode: string
  readonly percent: string | null
  readonly reason: string
  readonly changed_ms: string
}

export function rolloutRules(schema: string): string {
  return `SELECT prefix, mode, percent::text AS percent, reason, ${ms('changed_at')} AS changed_ms FROM ${schema}.rollout_rules()`
}

export interface AuditedRow {
  readonly id: string
  readonly at_ms: string
  readonly verb: string
  readonly by_role: string | null
  readonly by_name: string | null
  readonly by_address: string | null
  readonly dispatcher: string | null
  readonly topic: string | null
  readonly key: string | null
  readonly seq: string | null
  readonly reason: string | null
}

/** $1 the entry before, $2 verb, $3 topic, $4 key, $5 a part of who did it; each or null. */
export function outboxAudit(schema: string, limit: number): string {
  return `
    SELECT id::text AS id, ${ms('at')} AS at_ms, verb, by_role, by_name, host(by_address) AS by_address, dispatcher, topic, key,
           seq::text AS seq, reason
      FROM ${schema}.outbox_audit_list($1::bigint, $2::text, $3::text, $4::text, $5::text, ${limit})`
}

/** $1 the entry before, $2 the key, $3 a part of who did it; each or null. */
export function leasesTakenAway(schema: string, limit: number): string {
  return `
    SELECT id::text AS id, ${ms('ended_at')} AS at_ms, 'release' AS verb, NULL AS by_role, ended_by AS by_name, NULL AS by_address,
           NULL AS dispatcher, NULL AS topic, name AS key, fence::text AS seq, reason
      FROM ${schema}.lease_forced_list($1::bigint, $2::text, $3::text, ${limit})`
}
