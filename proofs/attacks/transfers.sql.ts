/** Ends one session that is in the middle of a transaction with something written or locked; says whether there was one. */
export const TERMINATE_ONE = `
  SELECT pg_terminate_backend(pid) FROM pg_stat_activity
   WHERE datname = current_database() AND application_name <> 'lab' AND pid <> pg_backend_pid()
     AND backend_xid IS NOT NULL AND state IN ('active', 'idle in transaction')
   ORDER BY random() LIMIT 1`
