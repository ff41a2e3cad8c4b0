export const WAL_POSITION = `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 AS bytes`

/** Each update and each delete leaves one behind, whether vacuum has been there since or not. */
export const DEAD_ROWS = `
  SELECT COALESCE(sum(n_tup_upd + n_tup_del), 0)::float8 AS answer FROM pg_stat_user_tables`
