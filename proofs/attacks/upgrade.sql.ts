/** Sessions that wait for a table because of the migrator ($1 is a pattern of its application's name), and the longest wait so far. */
export const STOPPED_BY_MIGRATOR = `
  SELECT count(*)::int AS sessions,
         coalesce(max(extract(epoch FROM clock_timestamp() - waiting.waitstart) * 1000), 0)::float8 AS "waitedMs"
    FROM pg_locks AS waiting
   WHERE NOT waiting.granted AND waiting.locktype = 'relation'
     AND EXISTS (SELECT FROM pg_stat_activity AS migrator
                  WHERE migrator.application_name = $1 AND migrator.pid <> waiting.pid
                    AND migrator.pid = ANY (pg_blocking_pids(waiting.pid)))`

/** Whether the migrator itself waits for a table. */
export const MIGRATOR_WAITS = `
  SELECT EXISTS (SELECT FROM pg_locks AS waiting JOIN pg_stat_activity AS migrator USING (pid)
                  WHERE NOT waiting.granted AND waiting.locktype = 'relation' AND migrator.application_name = $1) AS waits`

/** As transactions that write hold them: no ALTER TABLE gets in before they end. */
export const HOLD_TABLES = `
  LOCK TABLE lockstep.leases, lockstep.inbox, lockstep.outbox_dispatchers IN ROW EXCLUSIVE MODE`
/** A table that only later migrations alter: a run gets to that table. */
export const HOLD_LATER = `LOCK TABLE lockstep.outbox_dispatchers IN ROW EXCLUSIVE MODE`
export const BEGIN = 'BEGIN'
export const COMMIT = 'COMMIT'
export const SCHEMA_VERSION = 'SELECT version::int AS version FROM lockstep.schema_version()'
/** Of the tables; the function of that name has the version that is complete. */
export const APPLIED_VERSION = 'SELECT max(version)::int AS version FROM lockstep.migrations'
