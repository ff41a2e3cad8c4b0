/** Leases that were held once and given back, as they are found in a table that has been in use for long. */
export function fill(schema: string, rows: number): string {
  return `
    INSERT INTO "${schema}".leases (name, slot, permits, fence, token, holder, acquired_at, expires_at)
    SELECT 'Bench:' || n, 0, 1, n, NULL, 'filler', clock_timestamp(), clock_timestamp() FROM generate_series(0, ${rows} - 1) AS n
        ON CONFLICT DO NOTHING;
    ANALYZE "${schema}".leases`
}

export function vacuum(schema: string): string {
  return `VACUUM "${schema}".leases`
}

export const CHECKPOINT = 'CHECKPOINT'
export const WAL_POSITION = `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 AS bytes`
