/** Outboxes as people write them by hand. `json`, as ours has it: `jsonb` would cost them more. */

export const BEGIN = 'BEGIN'
export const COMMIT = 'COMMIT'
export const ROLLBACK = 'ROLLBACK'

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
export const INSERT_PLAIN = 'INSERT INTO plain_outbox (topic, key, payload, headers) VALUES ($1, $2, $3, $4)'

/** The limit of a delivery: rows in the order of their ids, many in a message, and nothing is written. */
export const FILL_PLAIN = `
  INSERT INTO plain_outbox (topic, key, payload, headers)
  SELECT $1, event->>'key', event->'payload', event->'headers' FROM json_array_elements($2::json) AS event`
export const READ_PLAIN = {
  name: 'read',
  text: 'SELECT id, key, payload, headers FROM plain_outbox WHERE id > $1 ORDER BY id LIMIT $2',
}

/** The limit from COMMIT to the sink: the event is kept, and travels in the notification of its own commit. */
export const INSERT_AND_NOTIFY = `
  WITH kept AS (INSERT INTO plain_outbox (topic, key, payload, headers) VALUES ($1, $2, $3, $4) RETURNING payload)
  SELECT pg_notify('plain_outbox', payload::text) FROM kept`
export const LISTEN = 'LISTEN plain_outbox'

/** With a status, and an index by which the next ones are found in their order. */
export const CREATE_PENDING = `
  CREATE TABLE outbox_event (
    id bigserial PRIMARY KEY,
    topic text NOT NULL,
    key text NOT NULL,
    payload json NOT NULL,
    headers json,
    status text NOT NULL DEFAULT 'PENDING',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
  );
  CREATE INDEX outbox_event_pending ON outbox_event (created_at, id) WHERE status = 'PENDING'`
export const INSERT_PENDING = 'INSERT INTO outbox_event (topic, key, payload, headers) VALUES ($1, $2, $3, $4)'
export const FILL_PENDING = `
  INSERT INTO outbox_event (topic, key, payload, headers)
  SELECT $1, event->>'key', event->'payload', event->'headers' FROM json_array_elements($2::json) AS event`

/** The lock is tried row by row, as the statement reads: a reader that does not get it does not see the row. */
export const TAKE_PENDING = `
  SELECT id, key, payload FROM outbox_event
   WHERE status = 'PENDING' AND pg_try_advisory_xact_lock(hashtext(key))
   ORDER BY created_at, id LIMIT $1`
export const MARK_SENT = `UPDATE outbox_event SET status = 'SENT' WHERE id = ANY($1)`

/** Lockstep's own function, for those who write their transactions in SQL. */
export const ENQUEUE_IN_SQL = 'SELECT lockstep.enqueue($1, $2, $3, $4)'
