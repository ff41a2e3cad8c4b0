/** Sessions of the workers with a transaction open, or a statement under way. */
const BUSY = `
  FROM pg_stat_activity
 WHERE application_name = $1 AND datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
 ORDER BY random() LIMIT $2`

export const TERMINATE = `
  SELECT count(pg_terminate_backend(pid))::int AS struck FROM (SELECT pid ${BUSY}) AS busy`
export const CANCEL = `
  SELECT count(pg_cancel_backend(pid))::int AS struck FROM (SELECT pid ${BUSY}) AS busy`

/** A snapshot is taken by the first statement. */
export const HOLD_SNAPSHOT = 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class'
export const LET_GO = 'COMMIT'

export const SLOW_COMMITS = 'ALTER SYSTEM SET commit_delay = 40000'
export const NO_SIBLINGS = 'ALTER SYSTEM SET commit_siblings = 0'
export const USUAL_COMMITS = 'ALTER SYSTEM RESET commit_delay'
export const USUAL_SIBLINGS = 'ALTER SYSTEM RESET commit_siblings'
export const RELOAD = 'SELECT pg_reload_conf()'

/** PgBouncer's: every server connection is replaced as soon as it is free. */
export const RECONNECT = 'RECONNECT'
