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

export const CHECKPOINT = 'CHECKPOINT'
