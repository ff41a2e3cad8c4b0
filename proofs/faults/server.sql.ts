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
