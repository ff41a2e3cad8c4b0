import { quoteLiteral } from '../postgres/index.ts'

/** The SQL of the lock list and of the names in it. Schema names arrive here already quoted. */

/** No transaction waits for the names: a lock of the table is waited for no longer than this. */
const NAMES_WAIT_MS = 500

/**
 * Writes names down. One message without BEGIN: it is one transaction all the same, and one that fails leaves nothing open on
 * the connection. Nothing waits for the disk: the table is UNLOGGED.
 */
export function recordNames(schema: string, names: readonly (readonly [id: bigint, key: string])[]): string {
  const list = quoteLiteral(JSON.stringify(names.map(([id, key]) => [String(id), key])))
  return `
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET LOCAL lock_timeout = ${NAMES_WAIT_MS}; SET LOCAL synchronous_commit = off;
    SELECT ${schema}.lock_names_record(${list}::text::json)`
}

/** Forgets the names beyond the newest `keep`, `most` of them at a time. */
export function trimNames(schema: string, keep: number, most: number): string {
  return `
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    SET LOCAL lock_timeout = ${NAMES_WAIT_MS}; SET LOCAL synchronous_commit = off;
    SELECT ${schema}.lock_names_trim(${keep}, ${most})`
}

/** One row of the list; everything is text, because the drivers read numbers and times each in their own way. */
export interface LockListRow {
  /** `lock`: a lock that is held or waited for. `edge`: `pid` waits for `blocker` at something that is not in the list. */
  readonly kind: 'lock' | 'edge'
  readonly id: string | null
  readonly key: string | null
  /** Null: a prepared transaction, which has no backend. */
  readonly pid: string | null
  readonly mode: 'exclusive' | 'shared' | null
  readonly granted: 'true' | 'false' | null
  readonly waited: string | null
  readonly blocker: string | null
  /** The kind of lock that an edge is about. */
  readonly awaits: string | null
  /** Of `pid`; in an edge of `blocker`. */
  readonly application: string | null
  readonly state: string | null
  readonly held: string | null
  readonly statement: string | null
}

/** More sessions than this that are stuck somewhere else are not followed, holders first. */
const MAX_FOLLOWED = 100

function ageMs(since: string): string {
  return `floor(extract(epoch FROM clock_timestamp() - ${since}) * 1000)::text`
}

/**
 * All sessions that hold or wait for an advisory lock of this database with a 64-bit id, waiters in the order in which they came.
 *
 * pg_locks is read once, so all rows are of one moment. `pg_blocking_pids` stops the whole lock table for each call, and names
 * all sessions ahead in a queue: it is asked only where a holder is stuck at something else, and then for all that are, because the
 * chain continues through them. (A recursive query asks for fewer, but makes room for half a million rows that the planner expects:
 * 25 ms of a fresh session's 35.) Without a schema the names are left out.
 */
export function lockList(schema: string | undefined, statements: boolean): string {
  const statement = statements ? 'CASE WHEN state IS NOT NULL THEN query END' : 'NULL::text'
  const key = schema === undefined ? 'NULL::text' : 'n.key'
  const names =
    schema === undefined
      ? ''
      : `LEFT JOIN ${schema}.lock_names_of(ARRAY(SELECT DISTINCT id FROM advisory)) n ON n.id = l.id`
  return `
    WITH every AS MATERIALIZED (
      SELECT locktype, classid, objid, transactionid, virtualtransaction, pid, mode, granted, waitstart,
             locktype = 'advisory' AND objsubid = 1
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AS listed
        FROM pg_locks
    ), advisory AS MATERIALIZED (
      SELECT (classid::bigint << 32) | objid::bigint AS id, virtualtransaction, pid, mode, granted, waitstart
        FROM every WHERE listed
    ), activity AS MATERIALIZED (
      -- Of other roles' sessions only those with pg_read_all_stats see more than the name.
      SELECT pid, application_name AS application, state, xact_start AS begun, ${statement} AS statement
        FROM pg_stat_activity
    ), prepared AS MATERIALIZED (
      SELECT e.virtualtransaction, x.gid, x.prepared
        FROM pg_prepared_xacts x JOIN every e ON e.locktype = 'transactionid' AND e.transactionid = x.transaction
       WHERE e.pid IS NULL
    ), stuck AS MATERIALIZED (
      SELECT DISTINCT ON (pid) pid, locktype FROM every WHERE NOT granted AND NOT listed ORDER BY pid
    ), edge AS MATERIALIZED (
      SELECT waiter.pid, waiter.locktype, blocker
        FROM (SELECT pid, locktype, pid IN (SELECT pid FROM advisory WHERE granted) AS holds FROM stuck
               WHERE EXISTS (SELECT FROM stuck JOIN advisory USING (pid) WHERE granted)
               ORDER BY holds DESC LIMIT ${MAX_FOLLOWED}) waiter,
             unnest(pg_blocking_pids(waiter.pid)) AS blocker
    )
    SELECT kind, id, key, pid, mode, granted, waited, blocker, awaits, application, state, held, statement FROM (
      SELECT 'lock' AS kind, row_number() OVER (ORDER BY l.granted DESC, l.waitstart, l.pid) AS place,
             l.id::text AS id, ${key} AS key, l.pid::text AS pid,
             CASE l.mode WHEN 'ShareLock' THEN 'shared' ELSE 'exclusive' END AS mode, l.granted::text AS granted,
             ${ageMs('l.waitstart')} AS waited, NULL::text AS blocker, NULL::text AS awaits,
             coalesce(a.application, p.gid) AS application,
             CASE WHEN l.pid IS NULL THEN 'prepared' ELSE a.state END AS state,
             ${ageMs('coalesce(a.begun, p.prepared)')} AS held, a.statement
        FROM advisory l LEFT JOIN activity a ON a.pid = l.pid
        LEFT JOIN prepared p ON l.pid IS NULL AND p.virtualtransaction = l.virtualtransaction ${names}
      UNION ALL
      SELECT 'edge', 0, NULL, NULL, e.pid::text, NULL, NULL, NULL, e.blocker::text, e.locktype,
             a.application, a.state, ${ageMs('a.begun')}, a.statement
        FROM edge e LEFT JOIN activity a ON a.pid = e.blocker
    ) listed ORDER BY place`
}
