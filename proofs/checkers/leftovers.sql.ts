/** What is left of locks on the whole server. */
export const ADVISORY_LOCKS = `SELECT pid, granted, classid, objid FROM pg_locks WHERE locktype = 'advisory'`

export const ADVISORY_WAITERS = `${ADVISORY_LOCKS} AND NOT granted`

export const SOMEBODY_HOLDS = `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted) AS yes`

export const SOMEBODY_WAITS = `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted) AS yes`
