/**
 * Does not wait until the server takes writes. A statement that waits has a snapshot, and so blocks the replay of what VACUUM has removed, which comes before
 * the promotion: after `max_standby_streaming_delay` it is cancelled.
 */
export const PROMOTE = 'SELECT pg_promote(false)'

/** From when this is in force, a COMMIT is answered when the standby has it on disk. */
export const WAIT_FOR_STANDBY = `ALTER SYSTEM SET synchronous_standby_names = '*'`
export const RELOAD = 'SELECT pg_reload_conf()'
export const IS_SYNCHRONOUS = `
  SELECT current_setting('synchronous_standby_names') = '*'
         AND EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming') AS yes`

export const WAL_POSITION = 'SELECT pg_current_wal_lsn()::text AS answer'
export const HAS_REPLAYED = 'SELECT (pg_last_wal_replay_lsn() >= $1::pg_lsn)::text AS answer'

export const IS_STANDBY = 'SELECT pg_is_in_recovery() AS standby'
