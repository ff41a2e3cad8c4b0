/** Which sessions are struck, by what they are in the middle of. */
export const MIDDLE_OF = {
  anything: 'true',
  /** A statement, or a transaction. */
  'a transaction': "state <> 'idle'",
  'a transaction that has written': "backend_xid IS NOT NULL AND state IN ('active', 'idle in transaction')",
  'holding a lock': "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)",
  'waiting for a lock': "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)",
} as const

/** Sessions of this database whose application has such a name ($1), some of them ($2) at random. */
function sessions(middleOf: keyof typeof MIDDLE_OF): string {
  return `
    SELECT pid FROM pg_stat_activity
     WHERE application_name LIKE $1 AND datname = current_database() AND backend_type = 'client backend'
       AND pid <> pg_backend_pid() AND ${MIDDLE_OF[middleOf]}
     ORDER BY random() LIMIT $2`
}

const STRIKES = { terminate: 'pg_terminate_backend(pid)', cancel: 'pg_cancel_backend(pid)' } as const

export function strike(how: keyof typeof STRIKES, middleOf: keyof typeof MIDDLE_OF): string {
  return `SELECT count(*) FILTER (WHERE ${STRIKES[how]})::int AS struck FROM (${sessions(middleOf)}) AS chosen`
}

/** Comes back when they are gone, $3 milliseconds later at most. */
export function terminateAndWait(middleOf: keyof typeof MIDDLE_OF): string {
  return `SELECT count(*) FILTER (WHERE pg_terminate_backend(pid, $3))::int AS struck FROM (${sessions(middleOf)}) AS chosen`
}

/** How many there are. */
export function countOf(middleOf: keyof typeof MIDDLE_OF): string {
  return `SELECT count(*)::int AS struck FROM (${sessions(middleOf)}) AS chosen`
}

/** The process of a backend. */
export const A_BACKEND = `
  SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1`

/**
 * Cancels at random for a while, from inside the server: over the network a cancel would not hit a statement that takes microseconds. Logins are
 * left in peace: they have no statement. Every other one goes to a backend that has an advisory lock, which is where a hand-over could
 * be struck in the middle.
 */
export function cancelFor(milliseconds: number): string {
  return `
    DO $cancel$
    DECLARE
      until timestamptz := clock_timestamp() + interval '${milliseconds} ms';
    BEGIN
      WHILE clock_timestamp() < until LOOP
        PERFORM pg_stat_clear_snapshot();
        PERFORM pg_cancel_backend(pid) FROM (
          SELECT pid FROM pg_stat_activity
           WHERE backend_type = 'client backend' AND application_name <> 'lab' AND pid <> pg_backend_pid()
             AND state IN ('active', 'idle', 'idle in transaction', 'idle in transaction (aborted)')
           ORDER BY random() LIMIT 1) victim;
        PERFORM pg_sleep(random() * 0.002);
        PERFORM pg_cancel_backend(pid) FROM (
          SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted ORDER BY random() LIMIT 1) holder;
        PERFORM pg_sleep(random() * 0.002);
      END LOOP;
    END
    $cancel$`
}
