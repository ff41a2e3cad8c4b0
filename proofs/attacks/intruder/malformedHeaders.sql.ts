/** The forms in which plain SQL enqueues, with headers that are given as text. */
export function enqueuings(schema = 'lockstep'): readonly string[] {
  return [
    `SELECT ${schema}.enqueue('headers', 'sql', '1', $1::text::json)`,
    `SELECT ${schema}.enqueue_bytes('headers', 'sql', '1'::bytea, $1::text::json)`,
    `SELECT ${schema}.outbox_append_many('{headers}', '{sql}', '{1}', '{NULL}', ARRAY[$1::text])`,
  ]
}

/** Enqueues one event of each of so many streams, in one transaction: one batch of the dispatcher. */
export const ENQUEUE = `SELECT lockstep.enqueue($1, 'stream ' || n, to_json(n)) FROM generate_series(1, $2::int) AS n`

/** What only the owner of the tables can do, or a dump of an older version can bring. */
export const PLANT = `UPDATE lockstep.outbox_events SET headers = $2::text::json WHERE topic = $1 AND key = 'stream ' || $3::int`

/** What a naive relay reads. */
export const READ = `SELECT key, payload, headers FROM lockstep.outbox_events WHERE topic = $1 ORDER BY id`
