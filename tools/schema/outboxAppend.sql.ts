import { bucketOf, groupLockOf, groupOf, STREAM_DIGEST, streamLockOf, streamOf } from './hashes.sql.ts'
import { SLOTS } from './slots.sql.ts'

/** The texts of `outbox_append()` and `outbox_append_at()`, which differ in one column: events without a time do not pay for it. */

/** Each slot has its own statements: a plan that is kept locks every table that it names, and would wait for a session that empties one. */
function writeSlot(slot: number, held: boolean): string {
  return `
  WHEN ${slot} THEN
    IF my_seq IS NULL THEN
      SELECT l.seq + 1, l.xid INTO my_seq, last_xid FROM :"schema".outbox_events_${slot} l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := (:"schema".outbox_last(ARRAY[mine]))[1] + 1; END IF;
    END IF;
    my_id := nextval(:'schema.outbox_ids'::regclass);
    INSERT INTO :"schema".outbox_events_${slot} (slot, id, xid, bucket, bucket_group, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers${held ? ', not_before' : ''})
    VALUES (${slot}, my_id, me, my_bucket, ${groupOf('my_bucket')}, mine, my_seq, COALESCE(${held ? 'outbox_append_at' : 'outbox_append'}.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers${held ? ', outbox_append_at.not_before' : ''});`
}

const GROUP_LOCK = groupLockOf(groupOf('my_bucket'))

/** Takes the group's lock, then the stream's: neither is ever null. */
const TAKE_LOCKS = `pg_advisory_xact_lock_shared(${GROUP_LOCK}) IS NULL
       OR pg_advisory_xact_lock(${streamLockOf('digest')}) IS NULL`

/**
 * What the sequence `epoch_mark` says where the first id on this timeline, in this database, was noted. `epoch_mark_now()` has the same
 * text.
 */
const EPOCH_MARK = `(('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint << 32)
                   + :'schema.outbox_ids'::regclass::oid::bigint`

function append(name: string, held: boolean): string {
  return String.raw`CREATE FUNCTION :"schema".${name}(
  topic text, key text, payload json, bytes bytea, headers json, ${held ? 'not_before timestamptz, ' : ''}known bigint DEFAULT NULL, id uuid DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  -- Before the id is given out, and before the slot is read.
  me xid8 := pg_current_xact_id();
  digest bytea := ${STREAM_DIGEST};
  mine uuid := ${streamOf('digest')};
  my_bucket smallint := ${bucketOf('digest')};
  my_id bigint;
  my_seq bigint := known + 1;
  last_xid xid8;
  streams integer;
BEGIN
  -- One small condition that the usual events meet; all others are checked exactly. PL/pgSQL sets up each expression again in every
  -- transaction, so that its size counts: 12 us where every limit was stated here, now 3. The library has checked the headers of an
  -- event that it gives an id. The epoch's mark says that the first id on this timeline was noted. 512: two parts, and pg_column_size() is the compressed size, at least 1/255, of a value from a table.
  IF (topic <> '' AND key <> '' AND octet_length(topic) + octet_length(key) <= 1000
      AND (known IS NOT NULL OR current_setting('transaction_isolation') = 'read committed')
      AND (payload IS NULL) <> (bytes IS NULL)
      AND pg_sequence_last_value(:'schema.epoch_mark'::regclass) = ${EPOCH_MARK}
      AND COALESCE(pg_column_size(payload), pg_column_size(bytes)) < :"schema".outbox_max_event_bytes() / 512
      AND (headers IS NULL OR pg_column_size(headers) < :"schema".outbox_max_event_bytes() / 512
                              AND (${name}.id IS NOT NULL OR :"schema".outbox_plain_headers(headers::text)))) IS NOT TRUE THEN
    PERFORM :"schema".epoch_mark_now();
    PERFORM :"schema".outbox_check_names(topic, key);
    IF known IS NULL AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
      PERFORM :"schema".outbox_refuse_isolation();
    END IF;
    IF headers IS NOT NULL THEN PERFORM :"schema".outbox_check_headers(topic, key, headers); END IF;
    PERFORM :"schema".outbox_refuse_payload(topic, key, octet_length(payload::text), octet_length(bytes), octet_length(headers::text));
  END IF;
${held ? '  PERFORM :"schema".outbox_check_time(topic, key, not_before);\n' : ''}  IF ${name}.id IS NOT NULL THEN
    IF ${TAKE_LOCKS} THEN RETURN NULL; END IF;
  ELSE
    streams := COALESCE(NULLIF(current_setting('lockstep.outbox_streams', true), ''), '0')::integer;
    IF streams >= 100 THEN
      PERFORM pg_advisory_xact_lock(${GROUP_LOCK});
    ELSIF ${TAKE_LOCKS} THEN
      RETURN NULL;
    END IF;
  END IF;
  -- Null as long as the first slot has never been left.
  CASE COALESCE(pg_sequence_last_value(:'schema.outbox_slot'::regclass), 0)${SLOTS.map((slot) => writeSlot(slot, held)).join('')}
  END CASE;
  IF streams IS NOT NULL OR my_id % 1000 = 0 THEN
    IF my_id % 1000 = 0 THEN PERFORM :"schema".outbox_tick(my_id); END IF;
    IF streams < 100 AND last_xid IS DISTINCT FROM me THEN
      PERFORM set_config('lockstep.outbox_streams', (streams + 1)::text, true);
    END IF;
  END IF;
  RETURN my_seq;
END
$$;
`
}

export const OUTBOX_APPEND = String.raw`-- Appends one event and gives its number. known: its stream's last number, where the caller read it under the lock before its snapshot.
-- Called once a transaction, on cold caches: what counts is how much is run. In the rate of a plain INSERT: 0.62 with the hash in
-- functions of its own; 0.76 inlined; 0.79 with one statement, the locks in an expression (PERFORM is a query); 0.90 kept by the server
-- process. With the last number in a variable and without RETURNING 25 us, as against 29.
-- A lock for each stream fills the server's lock table, for all sessions (20,000 streams in one transaction do). The library writes what a
-- transaction has at once, and knows. Of calls in SQL the transaction's streams are counted: from the 101st on it takes their groups
-- exclusively instead. The setting with the count ends with the transaction, and goes back with a savepoint as the locks do. Whatever it says
-- (every role can set it), one of the two locks is taken, and each keeps all others out. (Only where there is no id: counting takes 2 us.)
${append('outbox_append', false)}`

export const OUTBOX_APPEND_AT = String.raw`-- outbox_append() of an event that is not sent before a time (docs/decisions/0063-held-events.md).
${append('outbox_append_at', true)}`
