export const TAKE_XID = 'SELECT pg_current_xact_id()'
export const ENQUEUE_BY_SQL = 'SELECT lockstep.enqueue($1, $2, $3::text::json)'
export const TERMINATE_DISPATCHERS = `
  SELECT count(pg_terminate_backend(pid))::int AS ended FROM pg_stat_activity
   WHERE application_name = 'dispatcher' AND random() < 0.3`

/** The outbox of document 000, with a number for each event of a portfolio so that its order can be seen. */
export const CREATE_DOCUMENT_000 = `
  CREATE TABLE outbox_event (
    id bigserial PRIMARY KEY, portfolio_id text NOT NULL, seq int NOT NULL, status text NOT NULL DEFAULT 'PENDING',
    created_at timestamptz NOT NULL DEFAULT now());
  CREATE INDEX ON outbox_event (status, created_at, id);
  CREATE INDEX ON outbox_event (portfolio_id, seq)`

/** A writer that numbers its events rightly: what goes wrong is not its doing. */
export const LOCK_PORTFOLIO = `SELECT pg_advisory_xact_lock(1, hashtext($1))`
export const INSERT_DOCUMENT_000 = `
  INSERT INTO outbox_event (portfolio_id, seq)
  SELECT $1, coalesce(max(seq), 0) + 1 FROM outbox_event WHERE portfolio_id = $1`

/** As document 000 has it. */
export const FIND_PENDING = `
  SELECT id, portfolio_id, seq FROM outbox_event
   WHERE status = 'PENDING' AND pg_try_advisory_xact_lock(hashtext(portfolio_id::text))
   ORDER BY created_at ASC, id ASC LIMIT $1`
export const MARK_SENT = `UPDATE outbox_event SET status = 'SENT' WHERE id = ANY($1)`
export const PENDING = `SELECT count(*)::int AS pending FROM outbox_event WHERE status = 'PENDING'`
export const BEGIN = 'BEGIN'
export const COMMIT = 'COMMIT'

export const ALL_EVENTS = `
  SELECT topic || '/' || key AS key, seq::int AS seq, uuid::text AS uuid, payload->>'mark' AS mark FROM lockstep.outbox_events`
export const A_BACKEND = `
  SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1`
export const READY = 'SELECT 1'

/** The planted bug: what is visible is sent, whether it is on disk or not. */
export const WITHOUT_FLUSH = `
  CREATE OR REPLACE FUNCTION lockstep.outbox_flush(OUT life text, OUT place pg_lsn) LANGUAGE sql
  AS 'SELECT value::text, NULL::pg_lsn FROM lockstep.incarnation'`
