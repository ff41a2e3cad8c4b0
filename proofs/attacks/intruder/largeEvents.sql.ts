/** What is left of the edge before: dispatchers of another run would read what is not meant for them. */
export const EMPTY = 'TRUNCATE lockstep.outbox_events, lockstep.outbox_parked, lockstep.outbox_parked_events'

/** Events of `bytes` each, of so many streams, parked for a dispatcher as if its sink had refused them. */
export const PARK = `
  INSERT INTO lockstep.outbox_parked_events (dispatcher, stream, seq, id, uuid, enqueued_at, topic, key, payload)
  SELECT $1::text, lockstep.outbox_stream('large', s::text), n, nextval('lockstep.outbox_ids'), gen_random_uuid(), now(), 'large', s::text,
         to_json(repeat(md5(s || '/' || n), $4::int / 32))
    FROM generate_series(1, $2::int) AS s, generate_series(1, $3::int) AS n`
export const PARK_STREAMS = `
  INSERT INTO lockstep.outbox_parked (dispatcher, stream, shard, topic, key, state, reason)
  SELECT $1::text, lockstep.outbox_stream('large', s::text), 0, 'large', s::text, 'parked', 'refused'
    FROM generate_series(1, $2::int) AS s`

/** An event that is larger than the limit. Only the owner can write one, by taking the limit away. */
export const WITHOUT_LIMIT = `
  CREATE OR REPLACE FUNCTION lockstep.outbox_max_event_bytes() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT 1000000000::bigint'`
export const WITH_LIMIT = `
  CREATE OR REPLACE FUNCTION lockstep.outbox_max_event_bytes() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT 1000000::bigint'`
export const GIANT = `SELECT lockstep.enqueue_bytes('giant', 'one', convert_to(repeat('x', $1::int), 'UTF8'))`
export const SMALL = `SELECT lockstep.enqueue('giant', n::text, '1') FROM generate_series(1, $1::int) AS n`

/** What a naive dispatcher reads: everything that is due, and one event at a time. */
export const READ_PARKED = 'SELECT payload::text AS payload FROM lockstep.outbox_parked_events WHERE dispatcher = $1'
export const READ_NEXT = `SELECT encode(bytes, 'hex') AS body FROM lockstep.outbox_events WHERE topic = 'giant' ORDER BY id LIMIT 1`
