import { SCHEMA } from './scenario.ts'

/** The outbox of document 000, with a number for each event so that its order can be seen; and what the consumer has handled. */
export const TABLES = `
  CREATE TABLE ${SCHEMA}.outbox_000 (
    id bigserial PRIMARY KEY, round int NOT NULL, stream text NOT NULL, seq int NOT NULL, op text NOT NULL,
    status text NOT NULL DEFAULT 'PENDING', created_at timestamptz NOT NULL DEFAULT now());
  CREATE INDEX ON ${SCHEMA}.outbox_000 (status, created_at, id);
  CREATE INDEX ON ${SCHEMA}.outbox_000 (stream, seq);
  CREATE TABLE ${SCHEMA}.received (round int NOT NULL, stream text NOT NULL, op text NOT NULL)`

/** A writer that numbers its events rightly: what goes wrong is not its doing. */
export const LOCK_STREAM = 'SELECT pg_advisory_xact_lock(1, hashtext($1))'
export const INSERT_000 = `
  INSERT INTO ${SCHEMA}.outbox_000 (round, stream, seq, op)
  SELECT $1, $2, coalesce(max(seq), 0) + 1, $3 FROM ${SCHEMA}.outbox_000 WHERE stream = $2
  RETURNING seq`

// code: naive
/** As document 000 has it. */
export const FIND_PENDING = `
  SELECT id, stream, seq, op FROM ${SCHEMA}.outbox_000
   WHERE status = 'PENDING' AND round = $1 AND pg_try_advisory_xact_lock(2, hashtext(stream))
   ORDER BY created_at ASC, id ASC LIMIT 20`
// code: end
export const MARK_SENT = `UPDATE ${SCHEMA}.outbox_000 SET status = 'SENT' WHERE id = ANY($1)`

export const RECEIVE = `INSERT INTO ${SCHEMA}.received VALUES ($1, $2, $3)`
export const FOUND = `SELECT 'effect:' || stream AS key, NULL::int AS value, op FROM ${SCHEMA}.received WHERE round = $1`
