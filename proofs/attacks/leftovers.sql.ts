/** Ends every session that holds, or waits for, an advisory lock. */
export const TERMINATE_HOLDERS = `
  SELECT pg_terminate_backend(pid, 1000) FROM pg_locks WHERE locktype = 'advisory' AND granted`

export const TERMINATE_WAITERS = `
  SELECT pg_terminate_backend(pid, 1000) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`
