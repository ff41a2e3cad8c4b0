-- compatible-from: 1
-- Streams of the outbox that wait: what is due for another try, what came of it, and the end of the waiting.

-- The next events of streams that are due for another try, at most max_events of each.
CREATE FUNCTION :"schema".outbox_parked_due(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, max_streams integer, max_events integer
)
RETURNS TABLE (attempts integer, event_id bigint, topic text, key text, seq bigint, uuid uuid, enqueued_ms bigint, payload text,
               hex text, headers text, tombstone text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
  IF NOT :"schema".outbox_owns(my_dispatcher, my_shard, my_fence, my_life) THEN
    RETURN;
  END IF;
  RETURN QUERY
  SELECT p.attempts, e.id, p.topic, p.key, e.seq, e.uuid, (extract(epoch FROM e.enqueued_at) * 1000)::bigint, e.payload::text,
         encode(e.bytes, 'hex'), e.headers::text, e.tombstone
    FROM (SELECT * FROM :"schema".outbox_parked d
           WHERE d.dispatcher = my_dispatcher AND d.shard = my_shard AND d.state = 'parked' AND d.next_attempt_at <= clock_timestamp()
           ORDER BY d.next_attempt_at LIMIT max_streams) AS p
    LEFT JOIN LATERAL (SELECT * FROM :"schema".outbox_parked_events q
                        WHERE q.dispatcher = p.dispatcher AND q.stream = p.stream ORDER BY q.seq LIMIT max_events) AS e ON true
   ORDER BY p.stream, e.seq;
END
$$;

-- What another try of parked streams brought. outcomes is a list of { topic, key, sent: the uuids of the events that were sent, and where
-- it failed: id, its event's uuid, seq, reason, attempts, delay_ms, state, give_up: 'skipped' | 'dead' }. Events go by their uuid, not by
-- their number, which on a server that is behind can be another event's.
CREATE FUNCTION :"schema".outbox_parked_tried(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, outcomes jsonb
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
  o record;
  mine uuid;
  floor bigint;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(:"schema".outbox_shard_lock(my_dispatcher, my_shard));
  IF NOT :"schema".outbox_owns(my_dispatcher, my_shard, my_fence, my_life) THEN
    RETURN false;
  END IF;
  FOR o IN SELECT * FROM jsonb_to_recordset(outcomes) AS r(topic text, key text, sent uuid[], sent_up_to bigint, id uuid, seq bigint,
                                                           reason text, attempts integer, delay_ms float8, state text, give_up text,
                                                           was_tombstone boolean) LOOP
    mine := :"schema".outbox_stream(o.topic, o.key);
    -- In the order in which operators lock: the stream, then its events.
    SELECT p.sent_seq INTO floor FROM :"schema".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.stream = mine FOR UPDATE;
    DELETE FROM :"schema".outbox_parked_events e
     WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq > floor AND e.seq <= o.sent_up_to
       AND e.uuid = ANY(o.sent);
    IF o.sent_up_to > floor
       AND NOT EXISTS (SELECT FROM :"schema".outbox_parked_events e
                        WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq > floor AND e.seq <= o.sent_up_to) THEN
      floor := o.sent_up_to;
    END IF;
    -- Where an operator has given the event up meanwhile, what became of it before does not count.
    IF o.seq IS NULL OR EXISTS (SELECT FROM :"schema".outbox_parked_events e
                                 WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = o.seq
                                   AND e.tombstone IS NOT NULL AND NOT o.was_tombstone) THEN
      UPDATE :"schema".outbox_parked p SET attempts = 0, reason = NULL, next_attempt_at = clock_timestamp(), sent_seq = floor
       WHERE p.dispatcher = my_dispatcher AND p.stream = mine AND p.state = 'parked';
    ELSE
      IF o.give_up IS NOT NULL THEN
        -- A crash must not bring back what a tombstone has gone out for.
        PERFORM set_config('synchronous_commit', 'on', true);
      END IF;
      IF o.give_up = 'dead' THEN
        INSERT INTO :"schema".outbox_dead
        SELECT e.dispatcher, e.stream, e.seq, e.id, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, o.reason
          FROM :"schema".outbox_parked_events e
         WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = o.seq AND e.uuid = o.id
            ON CONFLICT DO NOTHING;
      END IF;
      IF o.give_up IS NOT NULL THEN
        UPDATE :"schema".outbox_parked_events e SET tombstone = o.give_up, payload = NULL, bytes = NULL
         WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = o.seq AND e.uuid = o.id;
        INSERT INTO :"schema".outbox_audit (verb, dispatcher, topic, key, seq, reason)
        VALUES (o.give_up, my_dispatcher, o.topic, o.key, o.seq, o.reason);
      END IF;
      -- What an operator said meanwhile stays said.
      UPDATE :"schema".outbox_parked p
         SET attempts = o.attempts, reason = o.reason, state = COALESCE(o.state, p.state), sent_seq = floor,
             next_attempt_at = clock_timestamp() + make_interval(secs => COALESCE(o.delay_ms, 0) / 1000.0)
       WHERE p.dispatcher = my_dispatcher AND p.stream = mine AND p.state = 'parked';
    END IF;
  END LOOP;
  RETURN true;
END
$$;

-- Takes streams that have caught up out of the list. Only between two reads of the shard: what was read before has been put aside.
CREATE FUNCTION :"schema".outbox_unpark(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, topics text[], keys text[]
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  gone integer;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(:"schema".outbox_shard_lock(my_dispatcher, my_shard));
  -- Waiting is done here: what is looked at below must not be older than that.
  PERFORM FROM :"schema".outbox_parked p, unnest(topics, keys) AS g(topic, key)
    WHERE p.dispatcher = my_dispatcher AND p.stream = :"schema".outbox_stream(g.topic, g.key) FOR UPDATE OF p;
  IF NOT :"schema".outbox_owns(my_dispatcher, my_shard, my_fence, my_life) THEN
    RETURN 0;
  END IF;
  DELETE FROM :"schema".outbox_parked p
   USING unnest(topics, keys) AS g(topic, key)
   WHERE p.dispatcher = my_dispatcher AND p.stream = :"schema".outbox_stream(g.topic, g.key) AND p.state = 'parked'
     AND NOT EXISTS (SELECT FROM :"schema".outbox_parked_events e
                      WHERE e.dispatcher = p.dispatcher AND e.stream = p.stream AND e.seq > p.sent_seq);
  GET DIAGNOSTICS gone = ROW_COUNT;
  RETURN gone;
END
$$;

-- What runs with the owner's rights is nobody else's until it is granted: docs/operating/outbox.md has a list for each role.
REVOKE EXECUTE ON FUNCTION :"schema".outbox_parked_due, :"schema".outbox_parked_tried, :"schema".outbox_unpark FROM PUBLIC;

-- For roles that cannot read the tables, as the other functions below.
CREATE FUNCTION :"schema".outbox_segment_list()
RETURNS TABLE (number bigint, opened_at timestamptz, left_at timestamptz, bytes bigint, is_current boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  RETURN QUERY
  SELECT s.number, s.opened_at, s.left_at, pg_total_relation_size(format('%I.%I', :'schema', 'outbox_events_' || s.slot)::regclass),
         s.slot = (SELECT o.last_value FROM :"schema".outbox_slot o)
    FROM :"schema".outbox_segments s ORDER BY s.number;
END
$$;

-- The streams that wait, those that wait longest first; of one dispatcher, or of all. Without payloads. The events of one have numbers
-- without a gap: first and last say how many there are, at the cost of two.
CREATE FUNCTION :"schema".outbox_parked_list(my_dispatcher text, most integer)
RETURNS TABLE (dispatcher text, topic text, key text, state text, attempts integer, reason text, since timestamptz,
               next_attempt_at timestamptz, events bigint, head bigint, head_id uuid)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  RETURN QUERY
  SELECT p.dispatcher, p.topic, p.key, p.state, p.attempts, p.reason, p.since,
         CASE WHEN p.state = 'parked' THEN p.next_attempt_at END, COALESCE(e.last - e.head + 1, 0), e.head,
         (SELECT q.uuid FROM :"schema".outbox_parked_events q
           WHERE q.dispatcher = p.dispatcher AND q.stream = p.stream AND q.seq = e.head)
    FROM :"schema".outbox_parked p
    CROSS JOIN LATERAL (SELECT min(q.seq) AS head, max(q.seq) AS last FROM :"schema".outbox_parked_events q
                         WHERE q.dispatcher = p.dispatcher AND q.stream = p.stream AND q.seq > p.sent_seq) AS e
   WHERE my_dispatcher IS NULL OR p.dispatcher = my_dispatcher
   ORDER BY p.since LIMIT most;
END
$$;

CREATE FUNCTION :"schema".outbox_dispatcher_names() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT d.name FROM :"schema".outbox_dispatchers d ORDER BY d.name $$;

-- The last place that was given out; 0 before the first.
CREATE FUNCTION :"schema".outbox_position() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END FROM :"schema".outbox_ids s $$;

-- The event at the head of a stream that waits. What is larger than max_bytes is left where it is: first by what is stored, so that
-- nothing huge is unpacked.
CREATE FUNCTION :"schema".outbox_head(my_dispatcher text, my_topic text, my_key text, max_bytes integer)
RETURNS TABLE (seq bigint, uuid uuid, enqueued_at timestamptz, headers json, tombstone text, size bigint, payload text, hex text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  RETURN QUERY
  SELECT e.seq, e.uuid, e.enqueued_at, CASE WHEN s.bytes <= max_bytes THEN e.headers END, e.tombstone, s.bytes,
         CASE WHEN s.bytes <= max_bytes THEN e.payload::text END, CASE WHEN s.bytes <= max_bytes THEN encode(e.bytes, 'hex') END
    FROM (SELECT q.*, :"schema".outbox_stored_bytes(q.payload, q.bytes, q.headers) AS stored FROM :"schema".outbox_parked_events q
           WHERE q.dispatcher = my_dispatcher AND q.stream = :"schema".outbox_stream(my_topic, my_key)
           ORDER BY q.seq LIMIT 1) AS e
    CROSS JOIN LATERAL (
      SELECT CASE WHEN e.stored > max_bytes THEN e.stored
                  ELSE coalesce(octet_length(e.bytes), octet_length(e.payload::text))::bigint
                       + coalesce(octet_length(e.headers::text), 0)
             END AS bytes
    ) AS s;
END
$$;

-- Retained events of one stream from a number on.
CREATE FUNCTION :"schema".outbox_replay_stream(
  my_topic text, my_key text, from_seq bigint, to_seq bigint, up_to bigint, most integer
) RETURNS SETOF :"schema".outbox_events
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT * FROM :"schema".outbox_events e
   WHERE e.stream = :"schema".outbox_stream(my_topic, my_key)
     AND e.seq >= from_seq AND e.id <= up_to AND (to_seq IS NULL OR e.seq <= to_seq)
   ORDER BY e.seq LIMIT most;
END
$$;

-- Retained events after a position, in the order of positions: within each stream its own.
CREATE FUNCTION :"schema".outbox_replay_after(after_id bigint, up_to bigint, my_topic text, most integer) RETURNS SETOF :"schema".outbox_events
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT * FROM :"schema".outbox_events e
   WHERE e.id > after_id AND e.id <= up_to AND (my_topic IS NULL OR e.topic = my_topic)
   ORDER BY e.id LIMIT most;
END
$$;
