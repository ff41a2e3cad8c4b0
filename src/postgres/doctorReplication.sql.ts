/** What is known of replication: a role that cannot see a standby's state (pg_read_all_stats) gets null for it. */
export function replicationState(schema: string): string {
  return `
    SELECT CASE WHEN NOT pg_is_in_recovery()
                THEN ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint::text END AS timeline,
           current_setting('synchronous_standby_names') AS names, current_setting('synchronous_commit') AS commits,
           (SELECT count(*)::text FROM pg_stat_replication) AS standbys,
           (SELECT count(*)::text FROM pg_stat_replication WHERE state IS NOT NULL) AS seen,
           (SELECT count(*)::text FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS synchronous,
           (SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn))::bigint::text FROM pg_stat_replication
             WHERE NOT pg_is_in_recovery()) AS lag,
           (SELECT count(*)::text FROM pg_replication_slots) AS slots,
           (SELECT count(*)::text FROM pg_replication_slots WHERE NOT active) AS unused,
           (SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))::bigint::text FROM pg_replication_slots
             WHERE NOT active AND NOT pg_is_in_recovery()) AS kept,
           f.max_ttl_ms::text AS ttl, f.synchronous_failover::text AS stated
      FROM ${schema}.failover_settings() AS f`
}
