/** Rows of events that were left dead. Vacuum may have taken some away: so whatever was updated or deleted counts as well. */
export const DEAD_EVENTS = `
  SELECT COALESCE(sum(n_dead_tup + n_tup_upd + n_tup_del), 0)::float8 AS answer
    FROM pg_stat_user_tables WHERE relname LIKE 'outbox\\_events\\__'`

/** Another application on the same server, with nothing for the outbox. */
export const CREATE_OTHER = 'CREATE TABLE other (id bigserial PRIMARY KEY, at timestamptz NOT NULL)'
export const WRITE_OTHER = 'INSERT INTO other (at) VALUES (now())'

/** As a table is some time after it was filled, and not in the middle of that. */
export function vacuum(schema: string): string {
  return `VACUUM (ANALYZE) "${schema}".outbox_events`
}

/** What the reads of all dispatchers have taken so far. Needs track_functions = 'pl'. */
export const READ_COST = `
  SELECT COALESCE(sum(calls), 0)::float8 AS calls, COALESCE(sum(total_time), 0)::float8 AS ms
    FROM pg_stat_user_functions WHERE funcname = 'outbox_read'`

/** Leaves the current segment. Each statement is a transaction of its own. */
export const NEXT_SEGMENT: readonly string[] = [
  `SELECT lockstep.outbox_prepare_segment('0')`,
  'SELECT lockstep.outbox_rotate()',
  'SELECT lockstep.outbox_seal()',
]

export function dropSchema(schema: string): string {
  return `DROP SCHEMA "${schema}" CASCADE`
}

export const CHECKPOINT = 'CHECKPOINT'
