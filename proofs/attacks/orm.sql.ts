/** What the attack on ORMs looks at. Every committed transaction has a row in notes, an increment of the counter and an event. */

export const NOTES = 'SELECT id FROM notes WHERE id LIKE $1'

/** The events of a stream, and the highest number among them: the same where there is no gap. */
export const EVENTS = `
  SELECT count(*)::int AS count, coalesce(max(seq), 0)::int AS last FROM lockstep.outbox_events WHERE topic = 'orms' AND key = $1`

/** Ends one session of a process that is in the middle of a transaction with something written. Those behind the pooler are its own. */
export const TERMINATE_ONE = `
  SELECT pg_terminate_backend(pid) FROM pg_stat_activity
   WHERE datname = current_database() AND application_name = 'orm direct' AND backend_xid IS NOT NULL
     AND state IN ('active', 'idle in transaction')
   ORDER BY random() LIMIT 1`
