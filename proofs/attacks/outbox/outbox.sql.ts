export const TAKE_XID = 'SELECT pg_current_xact_id()'
export const ENQUEUE_BY_SQL = 'SELECT lockstep.enqueue($1, $2, $3::text::json)'

export const BEGIN = 'BEGIN'
export const COMMIT = 'COMMIT'

export const ALL_EVENTS = `
  SELECT topic || '/' || key AS key, seq::int AS seq, uuid::text AS id, payload->>'mark' AS mark FROM lockstep.outbox_events`
export const READY = 'SELECT 1'

/** The planted bug: what is visible is sent, whether it is on disk or not. */
export const WITHOUT_FLUSH = `
  CREATE OR REPLACE FUNCTION lockstep.outbox_flush(OUT life text, OUT place pg_lsn) LANGUAGE sql
  AS 'SELECT value::text, NULL::pg_lsn FROM lockstep.incarnation'`
