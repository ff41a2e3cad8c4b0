-- compatible-from: 1
-- The outbox, read in columns and moved all shards at a time. outbox_fetch() stays for dispatchers that run with an older version.

-- As it was, in a language whose plans are kept from one call to the next.
CREATE OR REPLACE FUNCTION :"schema".outbox_shard_lock(my_dispatcher text, my_shard smallint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $$
BEGIN
  -- As lock_id() has it.
  RETURN ('x' || encode(substr(sha256(
    convert_to(:'schema', 'UTF8') || decode('006f7574626f782d736861726400', 'hex') || convert_to(my_dispatcher || ':' || my_shard, 'UTF8')
  ), 1, 8), 'hex'))::bit(64)::bigint;
END
$$;

-- As it was, but for the statement that writes: with the last number in a variable and without RETURNING 25 us, as against 29.
-- A lock for each stream uses up the server's table of locks, for everybody (20,000 streams in one transaction do). The library writes what a
-- transaction has at once, and knows. Of calls in SQL the transaction's streams are counted: from the 101st on it takes their buckets
-- exclusively instead. The setting with the count ends with the transaction, and goes back with a savepoint as the locks do. Whatever it says
-- (anybody can set it), one of the two locks is taken, and each keeps all others out. (Only where there is no id: counting takes 2 us.)
DO $do$
BEGIN
  EXECUTE replace($create$
CREATE OR REPLACE FUNCTION :"schema".outbox_append(
  topic text, key text, payload json, bytes bytea, headers json, known bigint DEFAULT NULL, id uuid DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $body$
DECLARE
  -- Before the id is given out, and before the slot is read.
  me xid8 := pg_current_xact_id();
  -- As outbox_stream(), outbox_bucket() and outbox_stream_lock() have it.
  digest bytea := sha256(convert_to(:'schema', 'UTF8') || decode('006f7574626f7800', 'hex') || convert_to(topic, 'UTF8')
                         || decode('00', 'hex') || convert_to(key, 'UTF8'));
  mine uuid := encode(substr(digest, 1, 16), 'hex')::uuid;
  my_bucket smallint := get_byte(digest, 15) & 63;
  my_id bigint;
  my_seq bigint := known;
  last_xid xid8;
  streams integer := CASE WHEN known IS NULL AND outbox_append.id IS NULL
                          THEN COALESCE(NULLIF(current_setting('lockstep.outbox_streams', true), ''), '0')::integer END;
BEGIN
  IF COALESCE(octet_length(topic), 0) NOT BETWEEN 1 AND 1000 OR COALESCE(octet_length(key), 0) NOT BETWEEN 1 AND 1000
     OR (known IS NULL AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')) THEN
    PERFORM :"schema".outbox_check_names(topic, key);
    PERFORM :"schema".outbox_refuse_isolation();
  END IF;
  IF headers IS NOT NULL THEN PERFORM :"schema".outbox_check_headers(topic, key, headers); END IF;
  IF (payload IS NULL) = (bytes IS NULL)
     OR COALESCE(octet_length(bytes), octet_length(payload::text))::bigint + COALESCE(octet_length(headers::text), 0)
        > :"schema".outbox_max_event_bytes() THEN
    PERFORM :"schema".outbox_refuse_payload(topic, key, octet_length(payload::text), octet_length(bytes), octet_length(headers::text));
  END IF;
  IF streams >= 100 THEN
    -- As outbox_bucket_lock() has it, and as below.
    PERFORM pg_advisory_xact_lock(('x' || encode(substr(sha256(
      convert_to(:'schema', 'UTF8') || decode('006f7574626f782d6275636b657400', 'hex')
    ), 1, 8), 'hex'))::bit(64)::bigint # my_bucket::bigint);
  -- Takes the bucket's lock, then the stream's: neither is ever null.
  ELSIF pg_advisory_xact_lock_shared(('x' || encode(substr(sha256(
       convert_to(:'schema', 'UTF8') || decode('006f7574626f782d6275636b657400', 'hex')
     ), 1, 8), 'hex'))::bit(64)::bigint # my_bucket::bigint) IS NULL
     OR pg_advisory_xact_lock(('x' || encode(substr(digest, 1, 8), 'hex'))::bit(64)::bigint) IS NULL THEN
    RETURN NULL;
  END IF;
  -- Null as long as the first slot has never been left.
  CASE COALESCE(pg_sequence_last_value(:'schema.outbox_slot'::regclass), 0) <writes>
  END CASE;
  IF my_id % 1000 = 0 THEN PERFORM :"schema".outbox_tick(my_id); END IF;
  IF streams < 100 AND last_xid IS DISTINCT FROM me THEN
    PERFORM set_config('lockstep.outbox_streams', (streams + 1)::text, true);
  END IF;
  RETURN my_seq;
END
$body$ $create$, '<writes>', (SELECT string_agg(replace($write$
  WHEN <slot> THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM :"schema".outbox_events_<slot> l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := (:"schema".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval(:'schema.outbox_ids'::regclass);
    INSERT INTO :"schema".outbox_events_<slot> (slot, id, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (<slot>, my_id, me, my_bucket, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);$write$, '<slot>', n::text), '' ORDER BY n) FROM generate_series(0, 7) AS n));
END
$do$;

-- How far the log was written when the snapshot was taken: what is visible in it has its commit before that.
ALTER TABLE :"schema".outbox_ticks ADD COLUMN written pg_lsn;

-- Records the caller's snapshot. It leaves out the caller itself, who is still in progress for everybody else: without adding it,
-- its events would be taken for delivered.
CREATE OR REPLACE FUNCTION :"schema".outbox_tick(at_id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET jit = off
AS $$
DECLARE
  now pg_snapshot := pg_current_snapshot();
  -- After the snapshot.
  written pg_lsn := pg_current_wal_insert_lsn();
  me xid8 := pg_current_xact_id();
  running xid8[] := ARRAY(SELECT x FROM (SELECT pg_snapshot_xip(now) AS x
                                          UNION SELECT me WHERE me < pg_snapshot_xmax(now)) AS r ORDER BY x);
BEGIN
  INSERT INTO :"schema".outbox_ticks VALUES (
    pg_snapshot_xmax(now), cardinality(running), at_id,
    format('%s:%s:%s', COALESCE(running[1], pg_snapshot_xmax(now)), pg_snapshot_xmax(now), array_to_string(running, ','))::pg_snapshot,
    written);
END
$$;

-- What outbox_advance() does, without anything put aside, for several shards: 250 to 290 us for as many as a message
-- has, as against 400 for each (both with pg_stat_statements, which slows them down).
CREATE FUNCTION :"schema".outbox_move(
  my_dispatcher text, my_shards smallint[], my_fences bigint[], my_versions bigint[], my_lives text[],
  new_prevs pg_snapshot[], new_nexts pg_snapshot[], new_afters bigint[], new_dones boolean[], new_seens bigint[]
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  here record;
  moved smallint[];
BEGIN
  -- Not before it is sent, only that it is sent: what a crash takes back is sent once more.
  PERFORM set_config('synchronous_commit', 'off', true);
  FOR i IN 1 .. cardinality(my_shards) LOOP
    PERFORM pg_advisory_xact_lock_shared(:"schema".outbox_shard_lock(my_dispatcher, my_shards[i]));
  END LOOP;
  SELECT * INTO here FROM :"schema".outbox_here(my_dispatcher);
  IF here.elsewhere THEN
    RETURN 0;
  END IF;
  WITH inserted AS (
  INSERT INTO :"schema".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
  SELECT my_dispatcher, m.shard, m.version + 1, m.fence, m.prev, m.next, m.after_id, m.done, m.seen_id
    FROM unnest(my_shards, my_fences, my_versions, my_lives, new_prevs, new_nexts, new_afters, new_dones, new_seens)
      AS m(shard, fence, version, life, prev, next, after_id, done, seen_id)
    CROSS JOIN LATERAL (SELECT o.version, o.fence FROM :"schema".outbox_cursors o
                         WHERE o.dispatcher = my_dispatcher AND o.shard = m.shard ORDER BY o.version DESC LIMIT 1) AS c
   WHERE c.version = m.version AND c.fence = m.fence AND m.life = here.life
      ON CONFLICT DO NOTHING RETURNING shard)
  SELECT array_agg(i.shard) INTO moved FROM inserted i;
  FOR i IN 1 .. cardinality(my_shards) LOOP
    -- Only behind a cursor that was moved just now: after a crash the one that the caller has read may not be there any more.
    IF my_versions[i] % 100 = 0 AND my_shards[i] = ANY(moved) THEN
      -- Not all that there ever were, but now and then: deleted ones stay in the index while a session holds an old snapshot.
      DELETE FROM :"schema".outbox_cursors o
       WHERE o.dispatcher = my_dispatcher AND o.shard = my_shards[i] AND o.version < my_versions[i]
         AND o.version >= my_versions[i] - CASE WHEN my_versions[i] % 10000 = 0 THEN my_versions[i] ELSE 300 END;
    END IF;
  END LOOP;
  RETURN COALESCE(cardinality(moved), 0);
END
$$;

-- How large an event is at least, without unpacking it: exact where nothing was compressed.
CREATE FUNCTION :"schema".outbox_stored_bytes(payload json, bytes bytea, headers json) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
  SELECT COALESCE(octet_length(bytes), pg_column_size(payload) - 4, 0)::bigint + COALESCE(pg_column_size(headers) - 4, 0)
$$;

-- The next events of streams that are due for another try: at most max_events of each, and of all together no more bytes than a read of
-- outbox_read() has; one event there always is. What does not fit stays due. A stream that has more events than are returned ends with
-- a row that has more and no event; one without events is a row without either. unreadable: the event has so many bytes, more than
-- the schema's limit, and comes without its payload. The time is computed as outbox_read() computes it: an event that is sent again has
-- the same one.
DROP FUNCTION :"schema".outbox_parked_due;
CREATE FUNCTION :"schema".outbox_parked_due(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, max_streams integer, max_events integer)
RETURNS TABLE (attempts integer, event_id bigint, topic text, key text, seq bigint, uuid uuid, enqueued_ms bigint, payload text,
               hex text, headers text, tombstone text, unreadable bigint, more text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  most_bytes CONSTANT bigint := 8000000;
  limit_bytes bigint := :"schema".outbox_max_event_bytes();
  spent bigint := 0;
  size bigint;
  events integer;
  p record;
  e record;
BEGIN
  IF NOT :"schema".outbox_owns(my_dispatcher, my_shard, my_fence, my_life) THEN
    RETURN;
  END IF;
  FOR p IN SELECT d.stream, d.topic, d.key, d.attempts, d.sent_seq FROM :"schema".outbox_parked d
            WHERE d.dispatcher = my_dispatcher AND d.shard = my_shard AND d.state = 'parked' AND d.next_attempt_at <= clock_timestamp()
            ORDER BY d.next_attempt_at LIMIT max_streams LOOP
    EXIT WHEN spent >= most_bytes;
    events := 0;
    more := NULL;
    SELECT INTO attempts, topic, key p.attempts, p.topic, p.key;
    FOR e IN SELECT q.id, q.seq, q.uuid, q.enqueued_at, q.payload, q.bytes, q.headers, q.tombstone FROM :"schema".outbox_parked_events q
              WHERE q.dispatcher = my_dispatcher AND q.stream = p.stream AND q.seq > p.sent_seq
               ORDER BY q.seq LIMIT max_events + 1 LOOP
      IF events = max_events OR spent >= most_bytes THEN
        more := 'more';
        EXIT;
      END IF;
      events := events + 1;
      SELECT INTO event_id, seq, uuid, enqueued_ms, tombstone, payload, hex, headers, unreadable
                  e.id, e.seq, e.uuid, (date_part('epoch', e.enqueued_at) * 1000)::bigint, e.tombstone, NULL, NULL, NULL, NULL;
      -- First by what is stored, so that nothing huge is unpacked.
      size := :"schema".outbox_stored_bytes(e.payload, e.bytes, e.headers);
      unreadable := size;
      IF size <= limit_bytes THEN
        BEGIN
          SELECT INTO payload, headers, hex e.payload, e.headers, encode(e.bytes, 'hex');
          size := COALESCE(octet_length(e.bytes), octet_length(payload), 0)::bigint + COALESCE(octet_length(headers), 0);
          unreadable := CASE WHEN size > limit_bytes THEN size END;
        EXCEPTION WHEN program_limit_exceeded OR out_of_memory OR internal_error THEN
          -- The server cannot unpack it.
          unreadable := size;
        END;
      END IF;
      IF unreadable IS NULL THEN
        spent := spent + COALESCE(octet_length(hex), octet_length(payload), 0) + COALESCE(octet_length(headers), 0);
      ELSE
        SELECT INTO payload, headers, hex NULL, NULL, NULL;
      END IF;
      RETURN NEXT;
    END LOOP;
    IF events = 0 OR more IS NOT NULL THEN
      SELECT INTO event_id, seq, uuid, enqueued_ms, tombstone, payload, hex, headers, unreadable
                  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
      RETURN NEXT;
    END IF;
  END LOOP;
END
$$;
REVOKE EXECUTE ON FUNCTION :"schema".outbox_parked_due FROM PUBLIC;

-- The transactions of a window with the buckets that they have events in; nulls where they are more than a few. Steps from one to the
-- next on the index, so that it costs the same however many events each has. (One statement: 10 us a step. A statement a step: 24.)
CREATE OR REPLACE FUNCTION :"schema".outbox_window_parts(
  slots smallint[], buckets smallint[], a pg_snapshot, z pg_snapshot, OUT part_buckets smallint[], OUT part_xids xid8[]
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  few CONSTANT integer := 300;
BEGIN
  WITH RECURSIVE begun AS (
    SELECT b AS bucket, (pg_snapshot_xmax(a)::text::bigint - 1)::text::xid8 AS xid FROM unnest(buckets) AS b
  ), steps AS (
    SELECT * FROM begun
    UNION ALL
    SELECT s.bucket, n.xid
      FROM steps s
      CROSS JOIN LATERAL (
        SELECT e.xid FROM :"schema".outbox_events e
         WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = s.bucket
           AND e.xid > s.xid AND e.xid < pg_snapshot_xmax(z)
         ORDER BY e.bucket, e.xid LIMIT 1) AS n
  )
  SELECT array_agg(p.bucket), array_agg(p.xid) INTO part_buckets, part_xids
    FROM (SELECT b AS bucket, x AS xid FROM unnest(buckets) AS b CROSS JOIN pg_snapshot_xip(a) AS x WHERE pg_visible_in_snapshot(x, z)
          UNION ALL
          SELECT * FROM (SELECT * FROM steps OFFSET cardinality(buckets)) AS found
          LIMIT few + 1) AS p;
  IF cardinality(part_xids) > few THEN
    part_buckets := NULL;
    part_xids := NULL;
  END IF;
END
$$;

-- The next events of shards, as far as their cursors say, at most max_events of each: one row for each shard, in which each column has
-- the values of all events, in their order. As a row for each event they cost the server 10 us each and the driver as much again,
-- most of it for taking rows apart into values and values into rows; as columns 4 us, and the driver next to nothing.
-- Bodies and headers are parted by a character that JSON cannot have in it; a body of bytes begins with another one, in hex; a third one
-- and a number is in place of a body that is larger than the schema's limit. Flags have one character for each event: e is erased, w
-- belongs to a stream that waits, b is both. Everything is text, and told in a way that no setting of the session changes.
-- All shards together get about 8 MB: where the first ones have used that up, the others have no row in the answer, and are asked for
-- again. One event there always is.
-- `prev` to `next` is the window: either what is being read already or, when that is done, what has been committed since; a long way is
-- gone in steps from tick to tick. whole: there is nothing more in it. The caller must not have a transaction id.
DO $do$
DECLARE
  columns text := $select$SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(<body>, E'\x1e'), string_agg(<head>, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM <parked>) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), <stored>$select$;
  found text := 'found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored';
  plain text := replace(replace(replace(columns, '<stored>', '0'),
    '<body>', $body$COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), '')$body$), '<head>', $head$COALESCE(w.headers::text, '')$head$);
  measured text := replace(replace(replace(columns, '<stored>', 'sum(w.size)'),
    '<body>', $body$CASE WHEN w.unpacked > <limit> THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END$body$),
    '<head>', $head$CASE WHEN w.unpacked > <limit> THEN '' ELSE w.head END$head$);
  -- Cut where there is enough, by what is known before anything is unpacked: bytes become hex, what was packed may become ninety times as
  -- much and mostly becomes less than ten times. One event there always is. What is stored with more than the limit is not unpacked;
  -- the rest is unpacked once (OFFSET 0 keeps the planner from doing it in two places) and measured.
  cut text := $cut$(SELECT m.*, CASE WHEN m.stored > <limit> THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > <limit> THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > <limit> THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, :"schema".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM <limited> AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < <most_stored> OFFSET 0) AS m) AS w$cut$;
  -- Of transactions that ran when the window began, only those that have ended by now are looked for, each by itself. (With
  -- xid = ANY(...), a plan made while the slot was empty has the transactions outside of the index condition, and reads the whole
  -- bucket for as long as the session lives.)
  limited text := $limited$(SELECT * FROM (
                      SELECT * FROM :"schema".outbox_events_<slot> e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM :"schema".outbox_events_<slot> e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most)$limited$;
  reads text := (SELECT string_agg(replace($read$
          WHEN slots[1] = <slot> AND NOT large THEN
            $read$ || plain || ' INTO ' || found || $read$
              FROM $read$ || limited || $read$ AS w;
          WHEN slots[1] = <slot> THEN
            $read$ || replace(measured, '<limit>', 'limit_bytes') || ' INTO ' || found || $read$
              FROM $read$ || replace(replace(replace(cut, '<limited>', limited), '<most_stored>', 'most_stored'), '<limit>', 'limit_bytes') || ';',
    '<slot>', n::text), '' ORDER BY n)
    FROM generate_series(0, 7) AS n);
BEGIN
  EXECUTE replace(replace(replace(replace(replace($create$
CREATE FUNCTION :"schema".outbox_read(
  my_dispatcher text, my_shards smallint[], my_fences bigint[], max_events integer[], shard_count integer
) RETURNS TABLE (
  shard text, verdict text, life text, prev text, next text, version text, last_id text, parked_due_ms text, stale text, whole text,
  ids text, topics text, keys text, seqs text, uuids text, enqueued_ms text, bodies text, headers text, flags text
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan SET jit = off
AS $body$
DECLARE
  c :"schema".outbox_cursors;
  a pg_snapshot;
  z pg_snapshot;
  tick pg_snapshot;
  ended xid8[];
  source text;
  events text;
  few_buckets smallint[];
  few_xids xid8[];
  buckets smallint[];
  slots smallint[];
  floor bigint;
  resumed boolean;
  found_events integer;
  most integer;
  -- What is large is read in smaller pieces; what was packed tightly, in still smaller ones: all of it must fit into one value.
  most_stored CONSTANT bigint := 4000000;
  most_bytes CONSTANT bigint := 8000000;
  limit_bytes bigint := :"schema".outbox_max_event_bytes();
  stored bigint;
  large boolean;
  bytes bigint;
  -- What the shards so far have got.
  spent bigint := 0;
  written pg_lsn;
  here record;
  -- What is on disk here may not be on the standby yet, and visible all the same: a COMMIT that is cancelled, or terminated, while it
  -- waits for the standby is a commit.
  alone boolean := current_setting('synchronous_standby_names') = '';
  stride integer;
BEGIN
  SELECT * INTO here FROM :"schema".outbox_here(my_dispatcher);
  FOR i IN 1 .. cardinality(my_shards) LOOP
    EXIT WHEN spent >= most_bytes;
    shard := my_shards[i];
    IF here.elsewhere THEN
      verdict := 'elsewhere';
      RETURN NEXT;
      CONTINUE;
    END IF;
    SELECT * INTO c FROM :"schema".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shards[i] ORDER BY o.version DESC LIMIT 1;
    IF c.fence IS DISTINCT FROM my_fences[i] THEN
      SELECT INTO verdict, life, prev, next, version, last_id, parked_due_ms, stale, whole, <found>
                  'lost', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
      RETURN NEXT;
      CONTINUE;
    END IF;
    buckets := ARRAY(SELECT generate_series(my_shards[i] * 64 / shard_count, (my_shards[i] + 1) * 64 / shard_count - 1)::smallint);
    -- So many ticks hold somewhat fewer events than are wanted: the rest of a window costs as much as a window.
    stride := greatest(1, max_events[i] * shard_count / 1250);
    resumed := NOT c.done;
    IF c.done THEN
      a := c.next;
      z := NULL;
      floor := 0;
    ELSE
      a := c.prev;
      z := c.next;
      floor := c.after_id;
    END IF;
    LOOP
      tick := NULL;
      written := NULL;
      IF z IS NULL THEN
        SELECT t.snapshot, t.written INTO tick, written FROM :"schema".outbox_ticks t
         WHERE t.newest >= pg_snapshot_xmax(a)
           AND (t.newest > pg_snapshot_xmax(a) OR t.running < :"schema".outbox_running(a))
         ORDER BY t.newest, t.running DESC OFFSET stride - 1 LIMIT 1;
        z := COALESCE(tick, pg_current_snapshot());
      END IF;
      -- A transaction that was open when the window began and still is at its end has nothing in it.
      ended := ARRAY(SELECT x FROM pg_snapshot_xip(a) AS x WHERE pg_visible_in_snapshot(x, z) ORDER BY x);
      -- Not those that were sealed before the first transaction of the window: one that stays open for long does not count, so that
      -- the slots since it began are not read all the time. The current slot always: a restored dump may not know it.
      slots := ARRAY(SELECT s.slot FROM :"schema".outbox_segments s
                      WHERE s.sealed_xid IS NULL OR s.sealed_xid > least(pg_snapshot_xmax(a), ended[1])
                     UNION SELECT o.last_value FROM :"schema".outbox_slot o);
      -- The rest of a window of few transactions, such as one that wrote a million events: read anew for every piece, 6,500/s;
      -- transaction by transaction, from where the last piece ended, 47,000/s.
      few_buckets := NULL;
      IF resumed AND floor > 0 THEN
        SELECT * INTO few_buckets, few_xids FROM :"schema".outbox_window_parts(slots, buckets, a, z);
      END IF;
      -- Where nothing is stored apart, every event fits on a page, and none needs to be measured: that is an eighth of the time.
      large := (SELECT bool_or(pg_relation_size(r.reltoastrelid) > 0)
                  FROM unnest(slots) AS n JOIN pg_class r ON r.oid = format('%I.outbox_events_%s', :'schema', n)::regclass);
      most := max_events[i];
      LOOP
        BEGIN
          -- Mostly there is one slot, and the plan for it is kept. One plan for all slots would lock all of them, and wait for whoever
          -- empties one; without one kept, the planning takes four fifths of the time when there is little to read.
          CASE WHEN cardinality(slots) > 1 OR few_buckets IS NOT NULL THEN
            source := CASE WHEN cardinality(slots) = 1 THEN format('%I.outbox_events_%s', :'schema', slots[1])
                           ELSE format('(SELECT * FROM %I.outbox_events WHERE slot = ANY(%L::smallint[]))', :'schema', slots) END;
            events := CASE WHEN few_buckets IS NULL
              THEN format('SELECT * FROM %1$s AS e WHERE e.bucket = ANY($2) AND e.xid >= $3 AND e.xid < $4 AND e.id > $5 UNION ALL
                           SELECT t.* FROM unnest($6) AS x(xid) CROSS JOIN unnest($2) AS b(bucket) CROSS JOIN LATERAL (
                             SELECT * FROM %1$s AS e WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > $5 ORDER BY e.id LIMIT $9
                           ) AS t', source)
              ELSE format('SELECT e.* FROM unnest($7, $8) AS p(bucket, xid) CROSS JOIN LATERAL (
                             SELECT * FROM %s AS v WHERE v.bucket = p.bucket AND v.xid = p.xid AND v.id > $5 ORDER BY v.id LIMIT $9
                           ) AS e', source) END;
            EXECUTE format($query$<dynamic>
                FROM <cut>$query$, :'schema', events)
              INTO <found>
              USING my_shards[i], buckets, pg_snapshot_xmax(a), pg_snapshot_xmax(z), floor, ended, few_buckets, few_xids, most,
                    my_dispatcher, z, most_stored, limit_bytes;<reads>
          END CASE;
          bytes := octet_length(bodies) + octet_length(headers);
          EXIT WHEN found_events <= 1 OR bytes <= most_bytes;
          most := greatest(1, found_events * (most_bytes / 2) / bytes);
        EXCEPTION WHEN program_limit_exceeded OR out_of_memory OR internal_error THEN
          -- One event that the server cannot unpack is reported as too large, by what is stored of it.
          IF most = 1 AND limit_bytes < 0 THEN RAISE; END IF;
          limit_bytes := CASE WHEN most = 1 THEN -1 ELSE limit_bytes END;
          most := greatest(1, most / 8);
        END;
      END LOOP;
      limit_bytes := :"schema".outbox_max_event_bytes();
      EXIT WHEN found_events > 0 OR (tick IS NULL AND NOT resumed);
      -- Nothing for this shard up to that tick, or no more in the window that was being read: on to the next.
      resumed := false;
      a := z;
      z := NULL;
      floor := 0;
    END LOOP;
    -- Whatever is visible in the window has its commit before this place in the log: that of the tick, else the current one.
    written := COALESCE(written, pg_current_wal_insert_lsn());
    verdict := CASE WHEN alone AND pg_current_wal_flush_lsn() >= written THEN 'durable' ELSE 'visible' END;
    life := here.life;
    prev := a;
    next := z;
    version := c.version;
    last_id := (SELECT s.last_value FROM :"schema".outbox_ids s);
    -- A segment waits for this cursor to be written, and it could be by now.
    stale := (SELECT 'stale' FROM :"schema".outbox_segments s
               WHERE s.sealed_xid > pg_snapshot_xmin(CASE WHEN c.done THEN c.next ELSE c.prev END)
                 AND s.sealed_xid <= pg_snapshot_xmin(z) LIMIT 1);
    parked_due_ms := (SELECT ceil(extract(epoch FROM min(p.next_attempt_at) - clock_timestamp()) * 1000)::bigint
                        FROM :"schema".outbox_parked p
                       WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i] AND p.state = 'parked');
    whole := CASE WHEN found_events < most AND COALESCE(stored, 0) < most_stored THEN 'whole' END;
    spent := spent + COALESCE(bytes, 0);
    RETURN NEXT;
  END LOOP;
END
$body$ $create$,
    '<reads>', reads),
    '<cut>', replace(replace(replace(cut, '<limited>', '(SELECT * FROM (%s) AS v WHERE pg_visible_in_snapshot(v.xid, $11) ORDER BY v.id LIMIT $9)'),
                             '<most_stored>', '$12'), '<limit>', '$13')),
    '<dynamic>', replace(replace(measured, '<limit>', '$13'), '<parked>', '%I.outbox_parked p WHERE p.dispatcher = $10 AND p.shard = $1')),
    '<parked>', $parked$:"schema".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]$parked$),
    '<found>', found);
END
$do$;

-- How many events of a bucket have an id above after_id and a transaction from first_xid on, below end_xid. Equal bounds mean that one
-- transaction, no end_xid no upper bound. Few events are counted. More are estimated: from the ids of the first and of the last ones,
-- which are at both ends of the index. So it costs the same for 1,000 and for 10,000,000 events.
CREATE FUNCTION :"schema".outbox_estimate(
  slots smallint[], my_bucket smallint, first_xid xid8, end_xid xid8, after_id bigint,
  OUT events bigint, OUT exact boolean, OUT oldest timestamptz
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  few CONSTANT integer := 50;
  upper_xid xid8 := COALESCE(end_xid, '9223372036854775807'::xid8);
  head_low bigint;
  head_high bigint;
  tail_low bigint;
  tail_high bigint;
  tail integer;
BEGIN
  IF first_xid = end_xid THEN
    SELECT count(*), min(f.id), max(f.id), min(f.enqueued_at) INTO events, head_low, head_high, oldest
      FROM (SELECT e.id, e.enqueued_at FROM :"schema".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = my_bucket AND e.xid = first_xid AND e.id > after_id
             ORDER BY e.bucket, e.xid, e.id LIMIT few) AS f;
  ELSE
    SELECT count(*), min(f.id), max(f.id), min(f.enqueued_at) INTO events, head_low, head_high, oldest
      FROM (SELECT e.id, e.enqueued_at FROM :"schema".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = my_bucket AND e.xid >= first_xid AND e.xid < upper_xid AND e.id > after_id
             ORDER BY e.bucket, e.xid, e.id LIMIT few) AS f;
  END IF;
  exact := events < few;
  IF exact THEN
    RETURN;
  END IF;
  IF first_xid = end_xid THEN
    SELECT count(*) FILTER (WHERE f.id > head_high), min(f.id), max(f.id) INTO tail, tail_low, tail_high
      FROM (SELECT e.id FROM :"schema".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = my_bucket AND e.xid = first_xid AND e.id > after_id
             ORDER BY e.bucket DESC, e.xid DESC, e.id DESC LIMIT few) AS f;
  ELSE
    SELECT count(*) FILTER (WHERE f.id > head_high), min(f.id), max(f.id) INTO tail, tail_low, tail_high
      FROM (SELECT e.id FROM :"schema".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = my_bucket AND e.xid >= first_xid AND e.xid < upper_xid AND e.id > after_id
             ORDER BY e.bucket DESC, e.xid DESC, e.id DESC LIMIT few) AS f;
  END IF;
  exact := tail < few;
  events := events + tail + (greatest(tail_low - head_high - 1, 0)
              * ((few - 1)::float8 / (head_high - head_low) + (few - 1)::float8 / (tail_high - tail_low)) / 2)::bigint;
END
$$;

-- What is known of the shards of all dispatchers. Everything is text. What is behind is counted where it is little, otherwise estimated.
-- Undelivered is what the cursor's `next` does not show, and, while a window is being read, the rest of that window.
CREATE FUNCTION :"schema".outbox_status()
RETURNS TABLE (dispatcher text, shard text, fence text, moved_ms text, parked text, lag_events text, lag_exact text, oldest_ms text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  d :"schema".outbox_dispatchers;
  c :"schema".outbox_cursors;
  next pg_snapshot;
  buckets smallint[];
  slots smallint[];
  ended xid8[];
  part_buckets smallint[];
  part_xids xid8[];
  part record;
  low bigint;
  high bigint;
  middle bigint;
  at record;
  total bigint;
  all_exact boolean;
  oldest timestamptz;
BEGIN
  FOR d IN SELECT * FROM :"schema".outbox_dispatchers o ORDER BY o.name LOOP
    FOR n IN 0 .. d.shards - 1 LOOP
      SELECT * INTO c FROM :"schema".outbox_cursors o WHERE o.dispatcher = d.name AND o.shard = n ORDER BY o.version DESC LIMIT 1;
      SELECT INTO total, all_exact, oldest, next 0, true, NULL, COALESCE(c.next, '1:1:');
      buckets := ARRAY(SELECT generate_series(n * 64 / d.shards, (n + 1) * 64 / d.shards - 1)::smallint);
      -- As in outbox_read().
      ended := ARRAY(SELECT x FROM pg_snapshot_xip(next) AS x WHERE pg_visible_in_snapshot(x, pg_current_snapshot()) ORDER BY x);
      slots := ARRAY(SELECT s.slot FROM :"schema".outbox_segments s
                      WHERE s.sealed_xid IS NULL OR s.sealed_xid > least(pg_snapshot_xmax(next), ended[1])
                     UNION SELECT o.last_value FROM :"schema".outbox_slot o);
      FOR part IN SELECT r.* FROM unnest(buckets) AS b
                   CROSS JOIN (SELECT pg_snapshot_xmax(next) AS low, NULL::xid8 AS high UNION ALL SELECT x, x FROM unnest(ended) AS x) AS w
                   CROSS JOIN LATERAL :"schema".outbox_estimate(slots, b, w.low, w.high, 0::bigint) AS r LOOP
        SELECT INTO total, all_exact, oldest total + part.events, all_exact AND part.exact, least(oldest, part.oldest);
      END LOOP;
      IF NOT c.done THEN
        ended := ARRAY(SELECT x FROM pg_snapshot_xip(c.prev) AS x WHERE pg_visible_in_snapshot(x, next) ORDER BY x);
        slots := ARRAY(SELECT s.slot FROM :"schema".outbox_segments s
                        WHERE s.sealed_xid IS NULL OR s.sealed_xid > least(pg_snapshot_xmax(c.prev), ended[1])
                       UNION SELECT o.last_value FROM :"schema".outbox_slot o);
        SELECT * INTO part_buckets, part_xids FROM :"schema".outbox_window_parts(slots, buckets, c.prev, next);
        IF part_buckets IS NULL THEN
          -- Many small transactions: ids grow with them, nearly. So the place that the cursor has come to is found by halving.
          SELECT INTO part_buckets, part_xids array_agg(b), array_agg(x) FROM unnest(buckets) AS b CROSS JOIN unnest(ended) AS x;
          FOR i IN 1 .. cardinality(buckets) LOOP
            low := pg_snapshot_xmax(c.prev)::text::bigint;
            high := pg_snapshot_xmax(next)::text::bigint;
            WHILE low < high LOOP
              middle := (low + high) / 2;
              SELECT e.id, e.xid INTO at FROM :"schema".outbox_events e
               WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = buckets[i] AND e.xid >= middle::text::xid8 AND e.xid < high::text::xid8
               ORDER BY e.bucket, e.xid, e.id LIMIT 1;
              IF NOT FOUND OR at.id > c.after_id THEN
                high := middle;
              ELSE
                low := at.xid::text::bigint + 1;
              END IF;
            END LOOP;
            SELECT * INTO part FROM :"schema".outbox_estimate(slots, buckets[i], low::text::xid8, pg_snapshot_xmax(next), c.after_id);
            SELECT INTO total, all_exact, oldest total + part.events, false, least(oldest, part.oldest);
          END LOOP;
        END IF;
        FOR part IN SELECT r.* FROM unnest(part_buckets, part_xids) AS p(bucket, xid)
                     CROSS JOIN LATERAL :"schema".outbox_estimate(slots, p.bucket, p.xid, p.xid, c.after_id) AS r
                     WHERE pg_visible_in_snapshot(p.xid, next) LOOP
          SELECT INTO total, all_exact, oldest total + part.events, all_exact AND part.exact, least(oldest, part.oldest);
        END LOOP;
      END IF;
      SELECT INTO dispatcher, shard, fence, moved_ms, lag_events, lag_exact, oldest_ms
                  d.name, n, c.fence, (extract(epoch FROM c.moved_at) * 1000), total, all_exact, (extract(epoch FROM oldest) * 1000);
      SELECT count(*) INTO parked FROM :"schema".outbox_parked p WHERE p.dispatcher = d.name AND p.shard = n;
      RETURN NEXT;
    END LOOP;
  END LOOP;
END
$$;

REVOKE EXECUTE ON FUNCTION :"schema".outbox_move, :"schema".outbox_read, :"schema".outbox_estimate, :"schema".outbox_status FROM PUBLIC;

-- grants: roles that dispatch can go on.
DO $do$
DECLARE
  who text;
BEGIN
  FOR who IN SELECT DISTINCT CASE granted.grantee WHEN 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END
               FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) AS granted
              WHERE p.oid = to_regproc(:'schema.outbox_fetch') AND granted.grantee <> p.proowner LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION %1$I.outbox_move, %1$I.outbox_read, %1$I.outbox_parked_due TO %2$s', :'schema', who);
  END LOOP;
END
$do$;
