/** Leases that were held once and released, as they are found in a table that has been in use for long. */
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

/** A lease as it is written by hand: a row with a token and an end, taken where there is none or where it has run out. */
export const CREATE_BY_HAND =
  'CREATE TABLE lease_by_hand (name text PRIMARY KEY, token uuid NOT NULL, expires_at timestamptz NOT NULL)'
export const TAKE_BY_HAND = `
  INSERT INTO lease_by_hand AS l (name, token, expires_at) VALUES ($1, $2, clock_timestamp() + $3 * interval '1 ms')
      ON CONFLICT (name) DO UPDATE SET token = excluded.token, expires_at = excluded.expires_at
   WHERE l.expires_at <= clock_timestamp()
  RETURNING token`
export const GIVE_BACK_BY_HAND = 'DELETE FROM lease_by_hand WHERE name = $1 AND token = $2'

/** The limit takes it in the same way, and its release leaves the row: no index changes. Each is sent as a prepared statement. */
export const TAKE_AT_LIMIT = { name: 'take', text: TAKE_BY_HAND }
export const RELEASE_AT_LIMIT = {
  name: 'release',
  text: `UPDATE lease_by_hand SET expires_at = '-infinity' WHERE name = $1 AND token = $2`,
}
