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
    -- For those who replicate all tables: without it PostgreSQL refuses to update a row there. (It is logged only where its columns change.)
    EXECUTE format('ALTER TABLE %I.%I REPLICA IDENTITY USING INDEX %I',
                   :'schema', 'outbox_events_' || n, 'outbox_events_' || n || '_stream');
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
  sealed_xid xid8,
  -- How far the last numbers of its streams are written down, in descending order of streams: see outbox_keep().
  kept_stream uuid,
  -- The largest id of its events, as far as they were looked at.
  last_id bigint
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

-- The server whose transactions the events name. A restored dump brings it along.
CREATE TABLE :"schema".outbox_home (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  system text NOT NULL,
  -- The largest id of an event that retention has removed.
  emptied_id bigint NOT NULL DEFAULT 0
);
INSERT INTO :"schema".outbox_home (system) SELECT s.system_identifier::text FROM pg_control_system() AS s;

-- Who dispatches, into how many shards, on which server its cursors are good, and how long it wants delivered events to stay. Null: for
-- ever.
CREATE TABLE :"schema".outbox_dispatchers (
  name text PRIMARY KEY,
  shards smallint NOT NULL,
  system text NOT NULL,
  database text NOT NULL,
  timeline bigint NOT NULL,
  retain_ms bigint DEFAULT 604800000,
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
  -- How far ids had been given out when `next` was read, or later: whatever has a larger one is not delivered.
  seen_id bigint NOT NULL,
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
  -- No event that is put aside has this number or a smaller one. While a session holds an old snapshot, rows that were deleted stay in
  -- the index: a search from the stream's beginning would pass all of them, each time.
  sent_seq bigint NOT NULL DEFAULT 0,
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

-- A stream's name: the first 16 bytes of the SHA-256 whose first 8 are its lock.
CREATE FUNCTION :"schema".outbox_stream(topic text, key text) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT encode(substr(sha256(
    convert_to(:'schema', 'UTF8') || decode('006f7574626f7800', 'hex') || convert_to(topic, 'UTF8') || decode('00', 'hex') || convert_to(key, 'UTF8')
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
AS $$ SELECT :"schema".lock_id('outbox-bucket', '') # bucket::bigint $$;

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
  FOR next IN SELECT :"schema".outbox_bucket_lock(b.n::integer)
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

CREATE FUNCTION :"schema".outbox_check_names(topic text, key text) RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
  IF COALESCE(octet_length(topic), 0) NOT BETWEEN 1 AND 1000 OR COALESCE(octet_length(key), 0) NOT BETWEEN 1 AND 1000 THEN
    RAISE EXCEPTION 'an event needs a topic and a key of 1 to 1000 bytes' USING ERRCODE = 'invalid_parameter_value';
  END IF;
END
$$;

-- Headers become those of a broker's message: an object whose values are text. Whatever else were let in, sinks could only refuse.
CREATE FUNCTION :"schema".outbox_check_headers(topic text, key text, headers json) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  wrong text;
BEGIN
  IF json_typeof(headers) = 'object' THEN
    SELECT format('%s is of type %s', to_json(h.key), json_typeof(h.value)) INTO wrong
      FROM json_each(headers) AS h WHERE json_typeof(h.value) <> 'string' LIMIT 1;
  ELSE
    wrong := 'they are of type ' || json_typeof(headers);
  END IF;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'the headers of an event of %/% are not an object of text: %', topic, key, left(wrong, 200)
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Pass an object whose values are text, such as {"content-language": "en"}, or an SQL NULL for none.';
  END IF;
END
$$;

-- The largest event that the schema takes and a dispatcher reads: payload and headers together, in bytes. migrate({ maxEventBytes })
-- replaces the function. It is a function and not a row because the planner inlines it: an enqueue pays nothing for the limit. STABLE
-- and not IMMUTABLE: a plan with an inlined function is made again after the function was replaced, one with a folded constant is not.
CREATE FUNCTION :"schema".outbox_max_event_bytes() RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT 1000000::bigint $$;

-- Raises the error for an event that has no payload, two payloads, or too large a payload.
CREATE FUNCTION :"schema".outbox_refuse_payload(topic text, key text, json_bytes integer, bytes_bytes integer, header_bytes integer) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  size bigint := COALESCE(json_bytes, bytes_bytes)::bigint + COALESCE(header_bytes, 0);
BEGIN
  IF json_bytes IS NULL AND bytes_bytes IS NULL THEN
    RAISE EXCEPTION 'the payload of an event of %/% is SQL NULL', topic, key
      USING ERRCODE = 'null_value_not_allowed', HINT = 'Enqueue JSON null as ''null''::json.';
  ELSIF json_bytes IS NOT NULL AND bytes_bytes IS NOT NULL THEN
    RAISE EXCEPTION 'an event of %/% has two payloads, JSON and bytes', topic, key
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass one of them, and NULL for the other.';
  ELSIF size > :"schema".outbox_max_event_bytes() THEN
    RAISE EXCEPTION 'an event of %/% has % bytes, more than the limit of % bytes', topic, key, size, :"schema".outbox_max_event_bytes()
      USING ERRCODE = 'program_limit_exceeded',
            HINT = 'Store what is large elsewhere and send a reference, or raise the limit: npx pg-lockstep migrate --max-event-bytes N.';
  END IF;
END
$$;

CREATE FUNCTION :"schema".outbox_refuse_isolation() RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RAISE EXCEPTION 'an event cannot be enqueued at %: its number would be read from a snapshot that is older than the stream''s lock',
    upper(current_setting('transaction_isolation'))
    USING ERRCODE = 'feature_not_supported',
          HINT = 'Use READ COMMITTED, or declare the stream: lockstep.transaction({ isolation, streams: [{ topic, key }] }, fn).';
END
$$;

-- The last numbers of streams, in their order; 0 for one that is new. Their locks must be held. Each look is a statement of its own:
-- of what is not found because a slot was emptied just now, the last number is in outbox_quiet by the time of the last look.
CREATE FUNCTION :"schema".outbox_last(streams uuid[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
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

-- Appends one event and gives its number. known: its stream's last number, where the caller read it under the lock before its snapshot.
-- Called once a transaction, on cold caches: what counts is how much is run. In the rate of a plain INSERT: 0.62 with the hash in
-- functions of its own; 0.76 inlined; 0.79 with one statement, the locks in an expression (PERFORM is a query); 0.90 kept by the server
-- process. Each slot has its own statement: a plan that is kept locks all that it names, and would wait for whoever empties one.
DO $do$
BEGIN
  EXECUTE replace($create$
CREATE FUNCTION :"schema".outbox_append(
  topic text, key text, payload json, bytes bytea, headers json, known bigint DEFAULT NULL, id uuid DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
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
  my_seq bigint;
BEGIN
  IF COALESCE(octet_length(topic), 0) NOT BETWEEN 1 AND 1000 OR COALESCE(octet_length(key), 0) NOT BETWEEN 1 AND 1000
     OR (known IS NULL AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')) THEN
    PERFORM :"schema".outbox_check_names(topic, key);
    PERFORM :"schema".outbox_refuse_isolation();
  END IF;
  -- Takes the bucket's lock, then the stream's: neither is ever null.
  IF pg_advisory_xact_lock_shared(('x' || encode(substr(sha256(
       convert_to(:'schema', 'UTF8') || decode('006f7574626f782d6275636b657400', 'hex')
     ), 1, 8), 'hex'))::bit(64)::bigint # my_bucket::bigint) IS NULL
     OR pg_advisory_xact_lock(('x' || encode(substr(digest, 1, 8), 'hex'))::bit(64)::bigint) IS NULL THEN
    RETURN NULL;
  END IF;
  -- Null as long as the first slot has never been left.
  CASE COALESCE(pg_sequence_last_value(:'schema.outbox_slot'::regclass), 0) <writes>
  END CASE;
  IF my_id % 1000 = 0 THEN PERFORM :"schema".outbox_tick(my_id); END IF;
  RETURN my_seq;
END
$body$ $create$, '<writes>', (SELECT string_agg(replace($write$
  WHEN <slot> THEN
    INSERT INTO :"schema".outbox_events_<slot> AS e (slot, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (
      <slot>, me, my_bucket, mine,
      COALESCE(known, (SELECT l.seq FROM :"schema".outbox_events_<slot> l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1),
               (:"schema".outbox_last(ARRAY[mine]))[1]) + 1,
      COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(), topic, key, payload, bytes, headers)
    RETURNING e.id, e.seq INTO my_id, my_seq;$write$, '<slot>', n::text), '' ORDER BY n) FROM generate_series(0, 7) AS n));
END
$do$;

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
  PERFORM :"schema".outbox_check_names(g.topic, g.key) FROM (SELECT DISTINCT * FROM unnest(topics, keys)) AS g(topic, key);
  PERFORM :"schema".outbox_check_headers(g.topic, g.key, g.headers::json)
    FROM unnest(topics, keys, headers) AS g(topic, key, headers) WHERE g.headers IS NOT NULL;
  PERFORM :"schema".outbox_refuse_payload(g.topic, g.key, octet_length(g.payload), octet_length(g.bytes), octet_length(g.headers))
     FROM unnest(topics, keys, payloads, bytes, headers) AS g(topic, key, payload, bytes, headers)
    WHERE (g.payload IS NULL) = (g.bytes IS NULL)
       OR COALESCE(octet_length(g.bytes), octet_length(g.payload))::bigint + COALESCE(octet_length(g.headers), 0)
          > :"schema".outbox_max_event_bytes();
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
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT :"schema".outbox_append(topic, key, payload, NULL::bytea, headers, NULL::bigint, NULL::uuid) $$;

CREATE FUNCTION :"schema".enqueue_bytes(topic text, key text, payload bytea, headers json DEFAULT NULL) RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT :"schema".outbox_append(topic, key, NULL::json, payload, headers, NULL::bigint, NULL::uuid) $$;

-- What runs with the owner's rights is nobody else's until it is granted: docs/operating/outbox.md has a list for each role.
REVOKE EXECUTE ON FUNCTION
  :"schema".outbox_lock(uuid[]), :"schema".outbox_lock(text[], text[]), :"schema".outbox_last,
  :"schema".outbox_append, :"schema".outbox_append_many, :"schema".enqueue, :"schema".enqueue_bytes
FROM PUBLIC;
