/** The table sizes with indexes and TOAST, and the dead rows, of Lockstep's schema and of the tables of the workload. */
export const LOOK = `
  SELECT (SELECT count(*)::int FROM pg_stat_activity
           WHERE datname = current_database() AND application_name LIKE 'worker%') AS connections,
         (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::float8 FROM pg_class c
           WHERE c.relkind = 'r' AND c.relnamespace = 'lockstep'::regnamespace) AS "schemaBytes",
         (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::float8 FROM pg_class c
           WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace) AS "tableBytes",
         (SELECT coalesce(sum(n_dead_tup), 0)::float8 FROM pg_stat_all_tables
           WHERE schemaname IN ('lockstep', 'public')) AS "deadRows",
         pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 AS "walBytes"`

/** What a run costs on this machine just now, without Lockstep. */
export const NOTHING = 'SELECT 1'

/** Tables of Lockstep's schema by size, for the record. */
export const LARGEST_TABLES = `
  SELECT c.relname AS name, pg_total_relation_size(c.oid)::float8 AS bytes FROM pg_class c
   WHERE c.relkind = 'r' AND c.relnamespace = 'lockstep'::regnamespace ORDER BY 2 DESC LIMIT 8`

/** The history of leases keeps the last 10,000: a run of an hour would fill it for half of its time. */
export const FILL_LEASE_HISTORY = `
  INSERT INTO lockstep.lease_history (name, slot, fence, holder, acquired_at, ended_at, ending)
  SELECT 'Lease:' || n % 40, 0, n, 'worker', now(), now(), 'released' FROM generate_series(1, 10500) AS n`

/** The names of locks: the last 50,000 are kept, and older ones are removed by the thousand. A run of an hour sees a fifth of that. */
export const FILL_LOCK_NAMES = `
  INSERT INTO lockstep.lock_names (id, key, seen_at)
  SELECT n, 'Filled:' || n, now() - make_interval(secs => n) FROM generate_series(1, 55000) AS n`
