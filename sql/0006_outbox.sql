-- compatible-from: 1
-- The outbox: strict order per stream (topic and key), append-only. No row of it is updated or deleted for an event's sake.

-- Events, in eight slots that are used in turn: a segment is what one slot holds from its opening until it is emptied as a whole.
CREATE TABLE :"schema".outbox_events (
  slot smallint NOT NULL,
  -- Given out under the stream's lock: within a stream in the order of its numbers.
  id bigint NOT NULL,
  xid xid8 NOT NULL,
  bucket smallint NOT NULL,
  stream uuid NOT NULL,
  seq bigint NOT NULL,
  uuid uuid NOT NULL,
  enqueued_at timestamptz NOT NULL,
  topic text NOT NULL,
  key text NOT NULL,
  -- One of the two; neither where the payload was erased.
  payload json,
  bytes bytea,
  headers json,
  erased boolean NOT NULL DEFAULT false
) PARTITION BY LIST (slot);

CREATE SEQUENCE :"schema".outbox_ids;

DO $do$
BEGIN
  EXECUTE format('ALTER TABLE %I.outbox_events ALTER COLUMN id SET DEFAULT nextval(%L)',
                 :'schema', format('%I.outbox_ids', :'schema'));
  FOR n IN 0 .. 7 LOOP
    EXECUTE format('CREATE TABLE %I.%I PARTITION OF %I.outbox_events FOR VALUES IN (%s)',
                   :'schema', 'outbox_events_' || n, :'schema', n);
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I.%I (stream, seq)',
                   'outbox_events_' || n || '_stream', :'schema', 'outbox_events_' || n);
    EXECUTE format('CREATE INDEX %I ON %I.%I (bucket, xid, id)',
                   'outbox_events_' || n || '_xid', :'schema', 'outbox_events_' || n);
    -- For replay from a position: ids lie in the table nearly in their order, so that this costs next to nothing.
    EXECUTE format('CREATE INDEX %I ON %I.%I USING brin (id) WITH (pages_per_range = 16, autosummarize = on)',
                   'outbox_events_' || n || '_id', :'schema', 'outbox_events_' || n);
  END LOOP;
END
$do$;

-- Which slot is written to: a sequence, because its value is read as it is now also by a transaction with an old snapshot. Were it
-- read from a snapshot, a transaction that began before a change of slots could write to a slot long after it was left.
CREATE SEQUENCE :"schema".outbox_slot AS smallint MINVALUE 0 MAXVALUE 7 START 0 CYCLE;

-- The slots in use. From sealed_xid on no transaction writes to a slot that was left.
CREATE TABLE :"schema".outbox_segments (
  slot smallint PRIMARY KEY,
  number bigint NOT NULL,
  opened_at timestamptz NOT NULL,
  left_at timestamptz,
  sealed_xid xid8
);
INSERT INTO :"schema".outbox_segments VALUES (0, 1, clock_timestamp());

-- The last numbers of streams whose events are all gone.
CREATE TABLE :"schema".outbox_quiet (
  stream uuid PRIMARY KEY,
  topic text NOT NULL,
  key text NOT NULL,
  seq bigint NOT NULL
);

-- Snapshots on the way, so that a backlog can be read in pieces. Gone after a crash, and must be: ids of transactions that were not
-- on disk by then are given out again.
CREATE UNLOGGED TABLE :"schema".outbox_ticks (
  newest xid8 NOT NULL,
  running integer NOT NULL,
  id bigint NOT NULL,
  snapshot pg_snapshot NOT NULL
);
CREATE INDEX outbox_ticks_order ON :"schema".outbox_ticks (newest, running DESC);

-- Who dispatches, into how many shards, and on which server its cursors are good.
CREATE TABLE :"schema".outbox_dispatchers (
  name text PRIMARY KEY,
  shards smallint NOT NULL,
  system text NOT NULL,
  database text NOT NULL,
  timeline bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- How far each shard is. Appended to, so that reading the last one costs the same however many there are: a row that is updated
-- has all its versions behind it while somebody holds an old snapshot open. Old versions are taken away in passing.
-- What is visible in `prev` is delivered; of what is visible in `next` as well, everything up to after_id, or all of it.
CREATE TABLE :"schema".outbox_cursors (
  dispatcher text NOT NULL,
  shard smallint NOT NULL,
  version bigint NOT NULL,
  fence bigint NOT NULL,
  prev pg_snapshot NOT NULL,
  next pg_snapshot NOT NULL,
  after_id bigint NOT NULL,
  done boolean NOT NULL,
  moved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (dispatcher, shard, version)
);

-- Streams that wait: for another try (parked), for an operator (blocked, paused).
CREATE TABLE :"schema".outbox_parked (
  dispatcher text NOT NULL,
  stream uuid NOT NULL,
  shard smallint NOT NULL,
  topic text NOT NULL,
  key text NOT NULL,
  state text NOT NULL CHECK (state IN ('parked', 'blocked', 'paused')),
  attempts integer NOT NULL DEFAULT 0,
  reason text,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (dispatcher, stream)
);
CREATE INDEX outbox_parked_shard ON :"schema".outbox_parked (dispatcher, shard);

-- Their events, copied: a segment can go before they do.
CREATE TABLE :"schema".outbox_parked_events (
  dispatcher text NOT NULL,
  stream uuid NOT NULL,
  seq bigint NOT NULL,
  id bigint NOT NULL,
  uuid uuid NOT NULL,
  enqueued_at timestamptz NOT NULL,
  topic text NOT NULL,
  key text NOT NULL,
  payload json,
  bytes bytea,
  headers json,
  -- Delivered as a tombstone: skipped, dead, or erased.
  tombstone text,
  PRIMARY KEY (dispatcher, stream, seq)
);

-- Events that were given up, with why.
CREATE TABLE :"schema".outbox_dead (
  dispatcher text NOT NULL,
  stream uuid NOT NULL,
  seq bigint NOT NULL,
  id bigint NOT NULL,
  uuid uuid NOT NULL,
  enqueued_at timestamptz NOT NULL,
  topic text NOT NULL,
  key text NOT NULL,
  payload json,
  bytes bytea,
  headers json,
  reason text,
  died_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (dispatcher, stream, seq)
);

-- What operators did, and why.
CREATE TABLE :"schema".outbox_audit (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  by_role text NOT NULL DEFAULT session_user,
  verb text NOT NULL,
  dispatcher text,
  topic text,
  key text,
  seq bigint,
  reason text
);

-- A stream's name: the first 16 bytes of the SHA-256 whose first 8 are its lock.
CREATE FUNCTION :"schema".outbox_stream(topic text, key text) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT encode(substr(sha256(
    convert_to(:'schema', 'UTF8') || '\x006f7574626f7800'::bytea || convert_to(topic, 'UTF8') || '\x00'::bytea || convert_to(key, 'UTF8')
  ), 1, 16), 'hex')::uuid
$$;

-- The number that is locked for a stream.
CREATE FUNCTION :"schema".outbox_stream_lock(stream uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT ('x' || left(replace(stream::text, '-', ''), 16))::bit(64)::bigint $$;

-- Which of the 64 buckets a stream is in. Never changes: it is stored with every event.
CREATE FUNCTION :"schema".outbox_bucket(stream uuid) RETURNS smallint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT (('x' || right(stream::text, 2))::bit(8)::integer & 63)::smallint $$;

-- The number that is locked for a bucket: shared by who writes to some of its streams, exclusively by who writes to very many.
CREATE FUNCTION :"schema".outbox_bucket_lock(bucket integer) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT :"schema".lock_id('outbox-bucket', bucket::text) $$;

-- Records the caller's snapshot. It leaves out the caller itself, who is still in progress for everybody else: without adding it,
-- its events would be taken for delivered.
CREATE FUNCTION :"schema".outbox_tick(at_id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  now pg_snapshot := pg_current_snapshot();
  me xid8 := pg_current_xact_id();
  running xid8[] := ARRAY(SELECT x FROM (SELECT pg_snapshot_xip(now) AS x
                                          UNION SELECT me WHERE me < pg_snapshot_xmax(now)) AS r ORDER BY x);
BEGIN
  INSERT INTO :"schema".outbox_ticks VALUES (
    pg_snapshot_xmax(now), cardinality(running), at_id,
    format('%s:%s:%s', COALESCE(running[1], pg_snapshot_xmax(now)), pg_snapshot_xmax(now), array_to_string(running, ','))::pg_snapshot);
END
$$;

-- Locks buckets and streams, in the one order that everybody keeps to: buckets by number, then streams by their lock. Who writes to
-- very many streams takes their buckets exclusively instead: a lock for each would use up the server's table of locks.
CREATE FUNCTION :"schema".outbox_lock(streams uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  many boolean := cardinality(streams) > 100;
  next bigint;
BEGIN
  FOR next IN SELECT :"schema".outbox_bucket_lock(b.n)
                FROM (SELECT DISTINCT :"schema".outbox_bucket(s) AS n FROM unnest(streams) AS s) AS b ORDER BY b.n LOOP
    IF many THEN
      PERFORM pg_advisory_xact_lock(next);
    ELSE
      PERFORM pg_advisory_xact_lock_shared(next);
    END IF;
  END LOOP;
  IF NOT many THEN
    FOR next IN SELECT DISTINCT :"schema".outbox_stream_lock(s) FROM unnest(streams) AS s ORDER BY 1 LOOP
      PERFORM pg_advisory_xact_lock(next);
    END LOOP;
  END IF;
END
$$;

-- The same by topics and keys, which may repeat.
CREATE FUNCTION :"schema".outbox_lock(topics text[], keys text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM :"schema".outbox_lock(ARRAY(SELECT DISTINCT :"schema".outbox_stream(g.topic, g.key) FROM unnest(topics, keys) AS g(topic, key)));
END
$$;

CREATE FUNCTION :"schema".outbox_refuse_isolation() RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RAISE EXCEPTION 'an event cannot be enqueued at %: its number would be read from a snapshot that is older than the stream''s lock',
    upper(current_setting('transaction_isolation'))
    USING ERRCODE = 'feature_not_supported',
          HINT = 'Use READ COMMITTED, or declare the stream: lockstep.transaction({ isolation, streams: [{ topic, key }] }, …).';
END
$$;

-- The last numbers of streams, in their order; 0 for one that is new. Their locks must be held. Each look is a statement of its own:
-- of what is not found because a slot was emptied just now, the last number is in outbox_quiet by the time of the last look.
CREATE FUNCTION :"schema".outbox_last(streams uuid[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  current_slot smallint := (SELECT last_value FROM :"schema".outbox_slot);
  lasts bigint[];
BEGIN
  lasts := ARRAY(
    SELECT (SELECT e.seq FROM :"schema".outbox_events e WHERE e.slot = current_slot AND e.stream = g.stream ORDER BY e.seq DESC LIMIT 1)
      FROM unnest(streams) WITH ORDINALITY AS g(stream, n) ORDER BY g.n);
  IF array_position(lasts, NULL) IS NOT NULL THEN
    lasts := ARRAY(
      SELECT COALESCE(g.last, (SELECT e.seq FROM :"schema".outbox_events e WHERE e.stream = g.stream ORDER BY e.seq DESC LIMIT 1))
        FROM unnest(streams, lasts) WITH ORDINALITY AS g(stream, last, n) ORDER BY g.n);
    IF array_position(lasts, NULL) IS NOT NULL THEN
      lasts := ARRAY(
        SELECT COALESCE(g.last, (SELECT q.seq FROM :"schema".outbox_quiet q WHERE q.stream = g.stream), 0)
          FROM unnest(streams, lasts) WITH ORDINALITY AS g(stream, last, n) ORDER BY g.n);
    END IF;
  END IF;
  RETURN lasts;
END
$$;

-- Appends one event and gives its number. known is its stream's last number, where the caller has read it under the lock before its
-- snapshot.
CREATE FUNCTION :"schema".outbox_append(
  topic text, key text, payload json, bytes bytea, headers json, known bigint DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  -- Before the id is given out, and before the slot is read.
  me xid8 := pg_current_xact_id();
  mine uuid := :"schema".outbox_stream(topic, key);
  my_bucket smallint := :"schema".outbox_bucket(mine);
  my_slot smallint;
  my_id bigint;
  last bigint := known;
BEGIN
  IF mine IS NULL THEN
    RAISE EXCEPTION 'an event needs a topic and a key' USING ERRCODE = 'null_value_not_allowed';
  END IF;
  PERFORM pg_advisory_xact_lock_shared(:"schema".outbox_bucket_lock(my_bucket));
  PERFORM pg_advisory_xact_lock(:"schema".outbox_stream_lock(mine));
  SELECT s.last_value INTO my_slot FROM :"schema".outbox_slot s;
  IF last IS NULL THEN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
      PERFORM :"schema".outbox_refuse_isolation();
    END IF;
    SELECT e.seq INTO last FROM :"schema".outbox_events e WHERE e.slot = my_slot AND e.stream = mine ORDER BY e.seq DESC LIMIT 1;
    IF NOT FOUND THEN
      last := (:"schema".outbox_last(ARRAY[mine]))[1];
    END IF;
  END IF;
  INSERT INTO :"schema".outbox_events AS e (slot, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
  VALUES (my_slot, me, my_bucket, mine, last + 1, gen_random_uuid(), clock_timestamp(), topic, key, payload, bytes, headers)
  RETURNING e.id INTO my_id;
  IF my_id % 1000 = 0 THEN
    PERFORM :"schema".outbox_tick(my_id);
  END IF;
  RETURN last + 1;
END
$$;

-- Appends many events, in their order. locked: whoever calls has locked their streams or buckets. known, as above, one for each event.
CREATE FUNCTION :"schema".outbox_append_many(
  topics text[], keys text[], payloads text[], bytes bytea[], headers text[], locked boolean DEFAULT false, known bigint[] DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  me xid8 := pg_current_xact_id();
  all_streams uuid[] := ARRAY(SELECT :"schema".outbox_stream(g.topic, g.key) FROM unnest(topics, keys) WITH ORDINALITY AS g(topic, key, n) ORDER BY g.n);
  streams uuid[];
  lasts bigint[];
  my_slot smallint;
  first_id bigint;
  last_id bigint;
  added integer;
BEGIN
  IF array_position(all_streams, NULL) IS NOT NULL THEN
    RAISE EXCEPTION 'an event needs a topic and a key' USING ERRCODE = 'null_value_not_allowed';
  END IF;
  streams := ARRAY(SELECT DISTINCT s FROM unnest(all_streams) AS s);
  IF NOT locked THEN
    PERFORM :"schema".outbox_lock(streams);
  END IF;
  SELECT s.last_value INTO my_slot FROM :"schema".outbox_slot s;
  IF known IS NULL THEN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
      PERFORM :"schema".outbox_refuse_isolation();
    END IF;
    lasts := :"schema".outbox_last(streams);
  ELSE
    lasts := ARRAY(SELECT (SELECT min(k.last) FROM unnest(all_streams, known) AS k(stream, last) WHERE k.stream = s.stream)
                     FROM unnest(streams) WITH ORDINALITY AS s(stream, n) ORDER BY s.n);
  END IF;
  WITH appended AS (
    INSERT INTO :"schema".outbox_events (slot, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    SELECT my_slot, me, :"schema".outbox_bucket(g.stream), g.stream,
           l.last + row_number() OVER (PARTITION BY g.stream ORDER BY g.n), gen_random_uuid(), clock_timestamp(),
           g.topic, g.key, g.payload::json, g.bytes, g.headers::json
      FROM unnest(all_streams, topics, keys, payloads, bytes, headers) WITH ORDINALITY
             AS g(stream, topic, key, payload, bytes, headers, n)
      JOIN unnest(streams, lasts) AS l(stream, last) ON l.stream = g.stream
     ORDER BY g.n
    RETURNING id)
  SELECT min(id), max(id), count(*) INTO first_id, last_id, added FROM appended;
  IF last_id / 1000 > (first_id - 1) / 1000 THEN
    PERFORM :"schema".outbox_tick(last_id);
  END IF;
  RETURN added;
END
$$;

-- For any language, a trigger, psql: SELECT lockstep.enqueue('trades', 'portfolio 7', '{"id": 101}').
CREATE FUNCTION :"schema".enqueue(topic text, key text, payload json, headers json DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE
AS $$ SELECT :"schema".outbox_append(topic, key, payload, NULL, headers) $$;

-- The same with bytes.
CREATE FUNCTION :"schema".enqueue_bytes(topic text, key text, payload bytea, headers json DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE
AS $$ SELECT :"schema".outbox_append(topic, key, NULL, payload, headers) $$;

-- Numbers in progress, of a snapshot.
CREATE FUNCTION :"schema".outbox_running(given pg_snapshot) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT count(*)::integer FROM pg_snapshot_xip(given) $$;

-- Makes a shard's cursor the caller's: from here on nobody with an older fence can move it. A new dispatcher begins with the oldest
-- event that there is.
CREATE FUNCTION :"schema".outbox_take(my_dispatcher text, my_shard smallint, my_fence bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  c :"schema".outbox_cursors;
BEGIN
  FOR try IN 1 .. 10 LOOP
    SELECT * INTO c FROM :"schema".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1;
    IF c.fence >= my_fence THEN
      RETURN c.fence = my_fence;
    END IF;
    INSERT INTO :"schema".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done)
    VALUES (my_dispatcher, my_shard, COALESCE(c.version, 0) + 1, my_fence, COALESCE(c.prev, '1:1:'), COALESCE(c.next, '1:1:'),
            COALESCE(c.after_id, 0), COALESCE(c.done, true))
        ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN true;
    END IF;
  END LOOP;
  RETURN false;
END
$$;

-- Moves a shard's cursor: from the version that the caller has read, with its fence, in the same life of the server. What the caller
-- remembers of a life that has ended (transaction ids above all) is worth nothing. In the same step, the events of streams that wait
-- are put aside: waiting is a list of { topic, key, seqs, reason, state, attempts, delay_ms }.
CREATE FUNCTION :"schema".outbox_advance(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_version bigint, life text,
  new_prev pg_snapshot, new_next pg_snapshot, new_after bigint, new_done boolean, waiting jsonb DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  -- Not before it is sent, only that it is sent: what a crash takes back is sent once more.
  PERFORM set_config('synchronous_commit', 'off', true);
  IF NOT EXISTS (SELECT FROM :"schema".incarnation i WHERE i.value::text = life) THEN
    RETURN false;
  END IF;
  INSERT INTO :"schema".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done)
  SELECT my_dispatcher, my_shard, my_version + 1, my_fence, new_prev, new_next, new_after, new_done
    FROM (SELECT o.version, o.fence FROM :"schema".outbox_cursors o
           WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1) AS c
   WHERE c.version = my_version AND c.fence = my_fence
      ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF my_version % 100 = 0 THEN
    DELETE FROM :"schema".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard AND o.version < my_version;
  END IF;
  IF waiting IS NOT NULL THEN
    INSERT INTO :"schema".outbox_parked (dispatcher, stream, shard, topic, key, state, attempts, reason, next_attempt_at)
    SELECT my_dispatcher, :"schema".outbox_stream(w.topic, w.key), my_shard, w.topic, w.key, COALESCE(w.state, 'parked'),
           COALESCE(w.attempts, 0), w.reason, clock_timestamp() + make_interval(secs => COALESCE(w.delay_ms, 0) / 1000.0)
      FROM jsonb_to_recordset(waiting) AS w(topic text, key text, state text, attempts integer, reason text, delay_ms float8)
        ON CONFLICT DO NOTHING;
    INSERT INTO :"schema".outbox_parked_events
    SELECT my_dispatcher, e.stream, e.seq, e.id, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers,
           CASE WHEN e.erased THEN 'erased' END
      FROM jsonb_to_recordset(waiting) AS w(topic text, key text, seqs bigint[])
      CROSS JOIN LATERAL unnest(w.seqs) AS s(seq)
      JOIN :"schema".outbox_events e ON e.stream = :"schema".outbox_stream(w.topic, w.key) AND e.seq = s.seq
        ON CONFLICT DO NOTHING;
  END IF;
  RETURN true;
END
$$;

-- The next events of shards, as far as their cursors say, at most max_events of each. After the events of a shard comes a row that
-- tells its window: what to write back. `prev` to `next` is either what is being read already or, when that is done, what has been
-- committed since; a long way is gone in steps from tick to tick. The caller must not have a transaction id.
CREATE FUNCTION :"schema".outbox_fetch(
  my_dispatcher text, my_shards smallint[], my_fences bigint[], shard_count integer, max_events integer
) RETURNS TABLE (
  shard smallint, verdict text, life text, prev text, next text, version bigint, last_id bigint, parked_due_ms bigint,
  event_id bigint, topic text, key text, seq bigint, uuid uuid, enqueued_at timestamptz, payload text, bytes bytea, headers text,
  tombstone text, waits boolean
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
  c :"schema".outbox_cursors;
  a pg_snapshot;
  z pg_snapshot;
  tick pg_snapshot;
  running xid8[];
  buckets smallint[];
  slots smallint[];
  floor bigint;
  resumed boolean;
  found_events integer;
  written pg_lsn;
  -- So many ticks hold about as many events as are wanted.
  stride integer := greatest(1, max_events * shard_count / 1000);
BEGIN
  FOR i IN 1 .. cardinality(my_shards) LOOP
    SELECT * INTO c FROM :"schema".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shards[i] ORDER BY o.version DESC LIMIT 1;
    IF c.fence IS DISTINCT FROM my_fences[i] THEN
      shard := my_shards[i];
      verdict := 'lost';
      RETURN NEXT;
      CONTINUE;
    END IF;
    buckets := ARRAY(SELECT generate_series(my_shards[i] * 64 / shard_count, (my_shards[i] + 1) * 64 / shard_count - 1)::smallint);
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
      IF z IS NULL THEN
        SELECT t.snapshot INTO tick FROM :"schema".outbox_ticks t
         WHERE t.newest >= pg_snapshot_xmax(a)
           AND (t.newest > pg_snapshot_xmax(a) OR t.running < :"schema".outbox_running(a))
         ORDER BY t.newest, t.running DESC OFFSET stride - 1 LIMIT 1;
        z := COALESCE(tick, pg_current_snapshot());
      END IF;
      running := ARRAY(SELECT pg_snapshot_xip(a));
      -- Not those that everybody had left before the window begins.
      slots := ARRAY(SELECT s.slot FROM :"schema".outbox_segments s
                      WHERE s.sealed_xid IS NULL OR s.sealed_xid > pg_snapshot_xmin(a));
      RETURN QUERY
      SELECT my_shards[i], NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
             w.id, w.topic, w.key, w.seq, w.uuid, w.enqueued_at, w.payload::text, w.bytes, w.headers::text,
             CASE WHEN w.erased THEN 'erased' END,
             w.stream IN (SELECT p.stream FROM :"schema".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i])
        FROM (SELECT * FROM :"schema".outbox_events e
               WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8])
                 AND e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
              UNION ALL
              SELECT * FROM :"schema".outbox_events e
               WHERE cardinality(running) > 0
                 AND e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8])
                 AND e.bucket = ANY(buckets) AND e.xid = ANY(running) AND e.id > floor) AS w
       WHERE pg_visible_in_snapshot(w.xid, z)
       ORDER BY w.id LIMIT max_events;
      GET DIAGNOSTICS found_events = ROW_COUNT;
      EXIT WHEN found_events > 0 OR (tick IS NULL AND NOT resumed);
      -- Nothing for this shard up to that tick, or no more in the window that was being read: on to the next.
      resumed := false;
      a := z;
      z := NULL;
      floor := 0;
    END LOOP;
    -- Whatever is visible in the window has its commit before this place in the log.
    written := pg_current_wal_insert_lsn();
    shard := my_shards[i];
    verdict := CASE WHEN pg_current_wal_flush_lsn() >= written THEN 'durable' ELSE 'visible' END;
    life := (SELECT n.value::text FROM :"schema".incarnation n);
    prev := a::text;
    next := z::text;
    version := c.version;
    last_id := (SELECT s.last_value FROM :"schema".outbox_ids s);
    parked_due_ms := (SELECT ceil(extract(epoch FROM min(p.next_attempt_at) - clock_timestamp()) * 1000)::bigint
                        FROM :"schema".outbox_parked p
                       WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i] AND p.state = 'parked');
    RETURN NEXT;
  END LOOP;
END
$$;

-- Brings everything that is visible to disk: a transaction that writes and is flushed takes all before it along.
CREATE FUNCTION :"schema".outbox_flush() RETURNS pg_lsn
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  RETURN pg_logical_emit_message(true, 'lockstep', '');
END
$$;

-- Whether the caller owns the shard.
CREATE FUNCTION :"schema".outbox_owns(my_dispatcher text, my_shard smallint, my_fence bigint) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
  SELECT COALESCE((SELECT o.fence = my_fence FROM :"schema".outbox_cursors o
                    WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1), false)
$$;

-- The next events of streams that are due for another try, at most max_events of each.
CREATE FUNCTION :"schema".outbox_parked_due(my_dispatcher text, my_shard smallint, my_fence bigint, max_streams integer, max_events integer)
RETURNS TABLE (attempts integer, event_id bigint, topic text, key text, seq bigint, uuid uuid, enqueued_at timestamptz, payload text,
               bytes bytea, headers text, tombstone text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF NOT :"schema".outbox_owns(my_dispatcher, my_shard, my_fence) THEN
    RETURN;
  END IF;
  RETURN QUERY
  SELECT p.attempts, e.id, p.topic, p.key, e.seq, e.uuid, e.enqueued_at, e.payload::text, e.bytes, e.headers::text, e.tombstone
    FROM (SELECT * FROM :"schema".outbox_parked d
           WHERE d.dispatcher = my_dispatcher AND d.shard = my_shard AND d.state = 'parked' AND d.next_attempt_at <= clock_timestamp()
           ORDER BY d.next_attempt_at LIMIT max_streams) AS p
    LEFT JOIN LATERAL (SELECT * FROM :"schema".outbox_parked_events q
                        WHERE q.dispatcher = p.dispatcher AND q.stream = p.stream ORDER BY q.seq LIMIT max_events) AS e ON true
   ORDER BY p.stream, e.seq;
END
$$;

-- What another try of parked streams brought. outcomes is a list of { topic, key, sent_up_to, and where it failed: seq, reason, attempts,
-- delay_ms, state, give_up: 'skipped' | 'dead' }.
CREATE FUNCTION :"schema".outbox_parked_tried(my_dispatcher text, my_shard smallint, my_fence bigint, outcomes jsonb) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  o record;
  mine uuid;
BEGIN
  IF NOT :"schema".outbox_owns(my_dispatcher, my_shard, my_fence) THEN
    RETURN false;
  END IF;
  FOR o IN SELECT * FROM jsonb_to_recordset(outcomes) AS r(topic text, key text, sent_up_to bigint, seq bigint, reason text,
                                                           attempts integer, delay_ms float8, state text, give_up text) LOOP
    mine := :"schema".outbox_stream(o.topic, o.key);
    DELETE FROM :"schema".outbox_parked_events e WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq <= o.sent_up_to;
    IF o.seq IS NULL THEN
      UPDATE :"schema".outbox_parked p SET attempts = 0, reason = NULL, next_attempt_at = clock_timestamp()
       WHERE p.dispatcher = my_dispatcher AND p.stream = mine AND p.state = 'parked';
    ELSE
      IF o.give_up = 'dead' THEN
        INSERT INTO :"schema".outbox_dead
        SELECT e.dispatcher, e.stream, e.seq, e.id, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, o.reason
          FROM :"schema".outbox_parked_events e WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = o.seq
            ON CONFLICT DO NOTHING;
      END IF;
      IF o.give_up IS NOT NULL THEN
        UPDATE :"schema".outbox_parked_events e SET tombstone = o.give_up, payload = NULL, bytes = NULL
         WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = o.seq;
        INSERT INTO :"schema".outbox_audit (verb, dispatcher, topic, key, seq, reason)
        VALUES (o.give_up, my_dispatcher, o.topic, o.key, o.seq, o.reason);
      END IF;
      -- What an operator said meanwhile stays said.
      UPDATE :"schema".outbox_parked p
         SET attempts = o.attempts, reason = o.reason, state = COALESCE(o.state, p.state),
             next_attempt_at = clock_timestamp() + make_interval(secs => COALESCE(o.delay_ms, 0) / 1000.0)
       WHERE p.dispatcher = my_dispatcher AND p.stream = mine AND p.state = 'parked';
    END IF;
  END LOOP;
  RETURN true;
END
$$;

-- Takes streams that have caught up out of the list. Only between two reads of the shard: what was read before has been put aside.
CREATE FUNCTION :"schema".outbox_unpark(my_dispatcher text, my_shard smallint, my_fence bigint, topics text[], keys text[]) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  gone integer;
BEGIN
  IF NOT :"schema".outbox_owns(my_dispatcher, my_shard, my_fence) THEN
    RETURN 0;
  END IF;
  DELETE FROM :"schema".outbox_parked p
   USING unnest(topics, keys) AS g(topic, key)
   WHERE p.dispatcher = my_dispatcher AND p.stream = :"schema".outbox_stream(g.topic, g.key) AND p.state = 'parked'
     AND NOT EXISTS (SELECT FROM :"schema".outbox_parked_events e WHERE e.dispatcher = p.dispatcher AND e.stream = p.stream);
  GET DIAGNOSTICS gone = ROW_COUNT;
  RETURN gone;
END
$$;

-- Writes a dispatcher down, or finds it.
CREATE FUNCTION :"schema".outbox_register(
  my_name text, my_shards smallint, this_system text, this_database text, this_timeline bigint
) RETURNS :"schema".outbox_dispatchers
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  d :"schema".outbox_dispatchers;
BEGIN
  INSERT INTO :"schema".outbox_dispatchers (name, shards, system, database, timeline)
  VALUES (my_name, my_shards, this_system, this_database, this_timeline) ON CONFLICT DO NOTHING;
  -- A promotion begins a new timeline, and the cursors are as good as before.
  UPDATE :"schema".outbox_dispatchers o SET timeline = this_timeline
   WHERE o.name = my_name AND o.system = this_system AND o.database = this_database AND o.timeline < this_timeline;
  SELECT * INTO d FROM :"schema".outbox_dispatchers o WHERE o.name = my_name;
  RETURN d;
END
$$;

-- Makes the next slot known, if the current segment is old enough and the next slot is free. It is written to only after this is
-- committed: whoever reads looks into all slots that are known.
CREATE FUNCTION :"schema".outbox_prepare_segment(min_age interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  current_slot smallint := (SELECT last_value FROM :"schema".outbox_slot);
BEGIN
  INSERT INTO :"schema".outbox_segments (slot, number, opened_at)
  SELECT (s.slot + 1) % 8, s.number + 1, clock_timestamp()
    FROM :"schema".outbox_segments s
   WHERE s.slot = current_slot AND s.opened_at <= clock_timestamp() - min_age
     AND EXISTS (SELECT FROM :"schema".outbox_events e WHERE e.slot = current_slot)
      ON CONFLICT DO NOTHING;
  RETURN FOUND;
END
$$;

-- From here on the slot that was made known is written to. This does not wait for a commit, and is not undone by a rollback.
CREATE FUNCTION :"schema".outbox_rotate() RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  here :"schema".outbox_segments;
  there :"schema".outbox_segments;
BEGIN
  IF NOT pg_try_advisory_xact_lock(:"schema".lock_id('outbox-retain', 'Outbox:rotate')) THEN
    RETURN false;
  END IF;
  SELECT * INTO here FROM :"schema".outbox_segments s WHERE s.slot = (SELECT last_value FROM :"schema".outbox_slot);
  SELECT * INTO there FROM :"schema".outbox_segments s WHERE s.number = here.number + 1;
  IF there.slot IS NULL THEN
    RETURN false;
  END IF;
  PERFORM setval(format('%I.outbox_slot', :'schema')::regclass, there.slot);
  UPDATE :"schema".outbox_segments s SET opened_at = clock_timestamp() WHERE s.slot = there.slot;
  RETURN true;
END
$$;

-- Notes from which transaction on nobody writes to a slot that was left: whoever read the old slot had its transaction id before that,
-- and so before this one got its own.
CREATE FUNCTION :"schema".outbox_seal() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  current_number bigint := (SELECT s.number FROM :"schema".outbox_segments s WHERE s.slot = (SELECT last_value FROM :"schema".outbox_slot));
  sealed integer;
BEGIN
  UPDATE :"schema".outbox_segments s SET left_at = clock_timestamp(), sealed_xid = pg_current_xact_id()
   WHERE s.number < current_number AND s.sealed_xid IS NULL;
  GET DIAGNOSTICS sealed = ROW_COUNT;
  RETURN sealed;
END
$$;

-- Empties slots that every dispatcher has passed and the time has left, keeping the last numbers of streams that have nothing newer.
-- Waits for nobody for long: writers would queue up behind it. Where there is no dispatcher, nothing has been delivered.
CREATE FUNCTION :"schema".outbox_drop(min_age interval) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  s :"schema".outbox_segments;
  passed xid8;
  dropped integer := 0;
BEGIN
  SELECT min(CASE WHEN c.done THEN pg_snapshot_xmin(c.next) ELSE pg_snapshot_xmin(c.prev) END) INTO passed
    FROM :"schema".outbox_dispatchers d
    CROSS JOIN LATERAL generate_series(0, d.shards - 1) AS n(shard)
    LEFT JOIN LATERAL (SELECT * FROM :"schema".outbox_cursors o
                        WHERE o.dispatcher = d.name AND o.shard = n.shard ORDER BY o.version DESC LIMIT 1) AS c ON true
   HAVING count(*) = count(c.version);
  IF passed IS NULL THEN
    RETURN 0;
  END IF;
  DELETE FROM :"schema".outbox_ticks t WHERE t.newest < passed;
  PERFORM set_config('lock_timeout', '300ms', true);
  FOR s IN SELECT * FROM :"schema".outbox_segments g
            WHERE g.sealed_xid <= passed AND g.left_at <= clock_timestamp() - min_age ORDER BY g.number LOOP
    BEGIN
      EXECUTE format('LOCK TABLE %I.%I IN ACCESS EXCLUSIVE MODE', :'schema', 'outbox_events_' || s.slot);
    EXCEPTION WHEN lock_not_available THEN
      EXIT;
    END;
    INSERT INTO :"schema".outbox_quiet AS q (stream, topic, key, seq)
    SELECT DISTINCT ON (e.stream) e.stream, e.topic, e.key, e.seq
      FROM :"schema".outbox_events e
     WHERE e.slot = s.slot
       AND NOT EXISTS (SELECT FROM :"schema".outbox_events later WHERE later.stream = e.stream AND later.slot <> s.slot AND later.seq > e.seq)
     ORDER BY e.stream, e.seq DESC
        ON CONFLICT (stream) DO UPDATE SET seq = greatest(q.seq, EXCLUDED.seq);
    EXECUTE format('TRUNCATE %I.%I', :'schema', 'outbox_events_' || s.slot);
    DELETE FROM :"schema".outbox_segments g WHERE g.slot = s.slot;
    dropped := dropped + 1;
  END LOOP;
  RETURN dropped;
END
$$;

-- An operator's verbs. Each is written down with who and why.
CREATE FUNCTION :"schema".outbox_operate(
  verb text, my_dispatcher text, my_topic text, my_key text, my_reason text
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  mine uuid := :"schema".outbox_stream(my_topic, my_key);
  d :"schema".outbox_dispatchers;
  p :"schema".outbox_parked;
  head bigint;
BEGIN
  SELECT * INTO d FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher;
  IF NOT FOUND THEN
    RETURN 'no dispatcher';
  END IF;
  IF verb = 'pause' THEN
    INSERT INTO :"schema".outbox_parked AS o (dispatcher, stream, shard, topic, key, state, reason)
    VALUES (my_dispatcher, mine, :"schema".outbox_bucket(mine) * d.shards / 64, my_topic, my_key, 'paused', my_reason)
        ON CONFLICT (dispatcher, stream) DO UPDATE SET state = 'paused', reason = EXCLUDED.reason;
  ELSE
    SELECT * INTO p FROM :"schema".outbox_parked o WHERE o.dispatcher = my_dispatcher AND o.stream = mine FOR UPDATE;
    IF NOT FOUND OR (verb = 'resume') <> (p.state = 'paused') THEN
      RETURN CASE WHEN p.state = 'paused' THEN 'paused' WHEN p.state IS NULL THEN 'not parked' ELSE 'not paused' END;
    END IF;
    IF verb = 'skip' THEN
      SELECT min(e.seq) INTO head FROM :"schema".outbox_parked_events e WHERE e.dispatcher = my_dispatcher AND e.stream = mine;
      IF head IS NULL THEN
        RETURN 'not parked';
      END IF;
      UPDATE :"schema".outbox_parked_events e SET tombstone = 'skipped', payload = NULL, bytes = NULL
       WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = head;
    END IF;
    UPDATE :"schema".outbox_parked o SET state = 'parked', attempts = 0, next_attempt_at = clock_timestamp()
     WHERE o.dispatcher = my_dispatcher AND o.stream = mine;
  END IF;
  INSERT INTO :"schema".outbox_audit (verb, dispatcher, topic, key, seq, reason)
  VALUES (verb, my_dispatcher, my_topic, my_key, head, my_reason);
  RETURN 'done';
END
$$;

-- Takes the payloads of a stream away, wherever they are. Numbers and order stay; what is not delivered yet goes out as a tombstone.
CREATE FUNCTION :"schema".outbox_erase(my_topic text, my_key text, my_reason text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  mine uuid := :"schema".outbox_stream(my_topic, my_key);
  erased_now integer;
BEGIN
  UPDATE :"schema".outbox_events e SET payload = NULL, bytes = NULL, headers = NULL, erased = true
   WHERE e.stream = mine AND NOT e.erased;
  GET DIAGNOSTICS erased_now = ROW_COUNT;
  UPDATE :"schema".outbox_parked_events e SET payload = NULL, bytes = NULL, headers = NULL, tombstone = COALESCE(e.tombstone, 'erased')
   WHERE e.stream = mine;
  UPDATE :"schema".outbox_dead e SET payload = NULL, bytes = NULL, headers = NULL WHERE e.stream = mine;
  INSERT INTO :"schema".outbox_audit (verb, topic, key, reason) VALUES ('erase', my_topic, my_key, my_reason);
  RETURN erased_now;
END
$$;

-- After a dump was restored, or on a copy: the ids of transactions in it are another server's. What was not delivered by then, as far as
-- the cursors in the dump tell, is put aside, stream by stream ('undelivered'), or held for delivered ('none'); or everything is
-- delivered again ('all'). Then the cursors begin anew on this server.
CREATE FUNCTION :"schema".outbox_rebase(
  my_dispatcher text, choice text, this_system text, this_database text, this_timeline bigint, my_reason text
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  d :"schema".outbox_dispatchers;
  c :"schema".outbox_cursors;
  put_aside bigint := 0;
  more bigint;
BEGIN
  IF choice NOT IN ('undelivered', 'all', 'none') THEN
    RAISE EXCEPTION 'choose undelivered, all or none' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM set_config('synchronous_commit', 'on', true);
  -- Nobody enqueues meanwhile.
  LOCK TABLE :"schema".outbox_events IN EXCLUSIVE MODE;
  LOCK TABLE :"schema".outbox_cursors IN EXCLUSIVE MODE;
  SELECT * INTO d FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher FOR UPDATE;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  FOR n IN 0 .. d.shards - 1 LOOP
    SELECT * INTO c FROM :"schema".outbox_cursors o WHERE o.dispatcher = my_dispatcher AND o.shard = n ORDER BY o.version DESC LIMIT 1;
    IF NOT FOUND THEN
      c.version := 0;
      c.fence := 0;
      c.next := '1:1:';
      c.done := true;
    END IF;
    IF choice <> 'none' THEN
      INSERT INTO :"schema".outbox_parked_events
      SELECT my_dispatcher, e.stream, e.seq, e.id, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers,
             CASE WHEN e.erased THEN 'erased' END
        FROM :"schema".outbox_events e
       WHERE e.bucket * d.shards / 64 = n
         AND (choice = 'all' OR NOT CASE WHEN c.done THEN pg_visible_in_snapshot(e.xid, c.next)
                ELSE pg_visible_in_snapshot(e.xid, c.prev) OR (pg_visible_in_snapshot(e.xid, c.next) AND e.id <= c.after_id) END)
          ON CONFLICT DO NOTHING;
      GET DIAGNOSTICS more = ROW_COUNT;
      put_aside := put_aside + more;
    END IF;
    INSERT INTO :"schema".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done)
    VALUES (my_dispatcher, n, c.version + 1, c.fence, pg_current_snapshot(), pg_current_snapshot(), 0, true);
  END LOOP;
  INSERT INTO :"schema".outbox_parked (dispatcher, stream, shard, topic, key, state, reason)
  SELECT DISTINCT my_dispatcher, e.stream, :"schema".outbox_bucket(e.stream) * d.shards / 64, e.topic, e.key, 'parked', 'rebase'
    FROM :"schema".outbox_parked_events e WHERE e.dispatcher = my_dispatcher
      ON CONFLICT DO NOTHING;
  UPDATE :"schema".outbox_dispatchers o SET system = this_system, database = this_database, timeline = this_timeline
   WHERE o.name = my_dispatcher;
  INSERT INTO :"schema".outbox_audit (verb, dispatcher, reason) VALUES ('rebase ' || choice, my_dispatcher, my_reason);
  RETURN put_aside;
END
$$;

-- The last step of a rebase, when every dispatcher has been through it: events of another server's transactions would else turn up
-- when this one's ids have come so far.
CREATE FUNCTION :"schema".outbox_forget_xids() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  forgotten bigint;
BEGIN
  UPDATE :"schema".outbox_events e SET xid = '1'::xid8 WHERE e.xid <> '1'::xid8;
  GET DIAGNOSTICS forgotten = ROW_COUNT;
  UPDATE :"schema".outbox_segments s SET sealed_xid = pg_current_xact_id() WHERE s.sealed_xid IS NOT NULL;
  DELETE FROM :"schema".outbox_ticks;
  RETURN forgotten;
END
$$;

-- What runs with the owner's rights is nobody else's until it is granted: docs/operating/outbox.md has a list for each role.
REVOKE EXECUTE ON FUNCTION
  :"schema".outbox_lock(uuid[]), :"schema".outbox_lock(text[], text[]), :"schema".outbox_last, :"schema".outbox_append,
  :"schema".outbox_append_many, :"schema".outbox_take, :"schema".outbox_advance, :"schema".outbox_fetch, :"schema".outbox_flush,
  :"schema".outbox_owns, :"schema".outbox_parked_due, :"schema".outbox_parked_tried, :"schema".outbox_unpark, :"schema".outbox_register,
  :"schema".outbox_prepare_segment, :"schema".outbox_rotate, :"schema".outbox_seal, :"schema".outbox_drop, :"schema".outbox_operate,
  :"schema".outbox_erase, :"schema".outbox_rebase, :"schema".outbox_forget_xids
FROM PUBLIC;
