/** What a server reports about those that depend on it. */
export const SIGNS = `
  SELECT (SELECT count(*)::int FROM pg_stat_activity
           WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name NOT LIKE 'lockstep prove%'
             AND application_name !~* '^(psql|pgadmin|dbeaver|datagrip|postico|tableplus)') AS sessions,
         (SELECT count(*)::int FROM pg_stat_replication) AS standbys,
         (SELECT coalesce(sum(n_live_tup), 0)::float8 FROM pg_stat_user_tables WHERE schemaname <> 'lockstep_prove') AS rows,
         pg_database_size(current_database())::float8 AS bytes,
         current_setting('archive_mode') AS archiving`
