/** The control: an outbox table as it is often drained, by as many calls at once as there are. */
export const CREATE_NAIVE = `
  CREATE TABLE naive_outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL, seq integer NOT NULL, sent boolean NOT NULL DEFAULT false)`
export const FILL_NAIVE = `
  INSERT INTO naive_outbox (key, seq) SELECT 'portfolio ' || k, s FROM generate_series(1, $2::int) AS s, generate_series(1, $1::int) AS k ORDER BY s, k`
export const TAKE_NAIVE = `
  SELECT id, key, seq FROM naive_outbox WHERE NOT sent ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED`
export const MARK_NAIVE = 'UPDATE naive_outbox SET sent = true WHERE id = ANY($1::bigint[])'
/** The shards that any process holds. */
export const HELD_SHARDS = `SELECT count(*)::int AS held FROM lockstep.leases WHERE name LIKE 'Outbox:%' AND token IS NOT NULL AND expires_at > clock_timestamp()`
