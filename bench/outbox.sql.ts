/** An outbox as people write it by hand: what enqueuing is compared with. `json`, as ours has it: `jsonb` would cost it more. */
export const CREATE_PLAIN = `
  CREATE TABLE plain_outbox (
    id bigserial PRIMARY KEY,
    topic text NOT NULL,
    key text NOT NULL,
    payload json NOT NULL,
    headers json,
    created_at timestamptz NOT NULL DEFAULT now()
  );
  CREATE INDEX plain_outbox_stream ON plain_outbox (topic, key)`

export const BEGIN = 'BEGIN'
export const INSERT_PLAIN = 'INSERT INTO plain_outbox (topic, key, payload, headers) VALUES ($1, $2, $3, $4)'
export const COMMIT = 'COMMIT'
export const ROLLBACK = 'ROLLBACK'

export function enqueueInSql(schema: string): string {
  return `SELECT "${schema}".enqueue($1, $2, $3, $4)`
}

/** The events up to an id, in order, with what a dispatcher reads of them: in the same types, so that the driver's work is the same. */
export function readPlainly(schema: string): string {
  return `SELECT id, topic, key, seq, uuid, (extract(epoch FROM enqueued_at) * 1000)::bigint AS enqueued_ms, payload::text,
                 encode(bytes, 'hex') AS hex, headers::text
            FROM "${schema}".outbox_events WHERE id <= $1 ORDER BY id`
}

/** As a table is some time after it was filled, and not in the middle of that. */
export function vacuum(schema: string): string {
  return `VACUUM (ANALYZE) "${schema}".outbox_events`
}

export const CHECKPOINT = 'CHECKPOINT'

export function setFlush(on: boolean): readonly string[] {
  return [`ALTER SYSTEM SET synchronous_commit = ${on ? 'on' : 'off'}`, 'SELECT pg_reload_conf()']
}

export function createDatabase(name: string): string {
  return `CREATE DATABASE "${name}"`
}

/** A snapshot that stays: from here on nothing that is deleted or updated in this database can be cleaned up. */
export const HOLD_SNAPSHOT = `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class`

/** Rows of events that were left dead. Vacuum may have taken some away: so whatever was updated or deleted counts as well. */
export const DEAD_EVENTS = `
  SELECT COALESCE(sum(n_dead_tup + n_tup_upd + n_tup_del), 0)::float8 AS dead, COALESCE(sum(n_tup_ins), 0)::float8 AS events
    FROM pg_stat_user_tables WHERE relname LIKE 'outbox\\_events\\__'`

/** Another application on the same server, with nothing for the outbox. */
export const CREATE_OTHER = 'CREATE TABLE other (id bigserial PRIMARY KEY, at timestamptz NOT NULL)'
export const WRITE_OTHER = 'INSERT INTO other (at) VALUES (now())'
