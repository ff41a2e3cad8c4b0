/** Whether the processes under attack have a transaction open, and how far it is. */
export const IN_FLIGHT = `
  SELECT CASE WHEN query = 'COMMIT' THEN 'in COMMIT' WHEN query LIKE '%INSERT INTO transfers%' THEN 'written' ELSE 'begun' END AS stage
    FROM pg_stat_activity
   WHERE datname = current_database() AND application_name <> 'lab' AND pid <> pg_backend_pid()
     AND backend_xid IS NOT NULL AND state IN ('active', 'idle in transaction')
   LIMIT 1`

export const SESSIONS = `
  SELECT count(*) = 0 AS yes FROM pg_stat_activity
   WHERE datname = current_database() AND application_name <> 'lab' AND backend_type = 'client backend'`
