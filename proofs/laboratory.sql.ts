import { SCHEMA } from './scenarios/scenario.ts'

export const DROP_SCHEMA = `DROP SCHEMA IF EXISTS ${SCHEMA} CASCADE`
/** The timeline of the primary, and how many server epochs began on another one than the epoch before. */
export const TIMELINES = `
  SELECT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int AS timeline,
         (SELECT count(*)::int FROM ${SCHEMA}.epochs WHERE kind = 'timeline') AS noticed`

export const VERSION = `SELECT current_setting('server_version') AS version`

/** What is still held by sessions of the workers, and what they left: nothing, when all of them are closed. */
export const HELD = `
  SELECT 'advisory lock ' || classid || '/' || objid AS held
    FROM pg_locks JOIN pg_stat_activity USING (pid)
   WHERE locktype = 'advisory' AND application_name LIKE $1
  UNION ALL
  SELECT 'transaction of pid ' || pid || ', ' || state FROM pg_stat_activity
   WHERE application_name LIKE $1 AND state <> 'idle' AND pid <> pg_backend_pid()
  UNION ALL
  SELECT 'lease ' || name || ' of ' || holder FROM ${SCHEMA}.leases WHERE token IS NOT NULL AND expires_at > clock_timestamp()
  UNION ALL
  SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts WHERE database = current_database()`

/** Whom the workers wait for. */
export const BLOCKERS = `
  SELECT DISTINCT 'pid ' || pid || ' (' || application_name || ', ' || coalesce(state, 'no state') || ', its last statement '
                  || left(regexp_replace(query, '\\s+', ' ', 'g'), 100) || ')' AS blocker
    FROM pg_stat_activity
   WHERE pid IN (SELECT unnest(pg_blocking_pids(pid)) FROM pg_stat_activity WHERE application_name LIKE $1)`
