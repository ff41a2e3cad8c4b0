-- What another try of parked streams brought. outcomes is a list of { topic, key, sent: the uuids of the events that were sent, and where
-- it failed: id, its event's uuid, seq, reason, attempts, delay_ms, state, give_up: 'skipped' | 'dead' }. Events go by their uuid, not by
-- their number, which on a server that is behind can be another event's.
CREATE FUNCTION :"schema".outbox_parked_tried(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, outcomes jsonb
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  o record;
  mine uuid;
  floor bigint;
  -- The time of the event that is at the head afterwards: the stream is not due before it.
  head timestamptz;
BEGIN
  PERFORM pg_advisory_xact_lock_shared(:"schema".outbox_shard_lock(my_dispatcher, my_shard));
  IF NOT :"schema".outbox_owns(my_dispatcher, my_shard, my_fence, my_life) THEN
    RETURN false;
  END IF;
  FOR o IN SELECT * FROM jsonb_to_recordset(outcomes) AS r(topic text, key text, sent uuid[], sent_up_to bigint, id uuid, seq bigint,
                                                           reason text, attempts integer, delay_ms float8, state text, give_up text,
                                                           was_tombstone boolean)
            -- As outbox_hold() locks them.
            ORDER BY :"schema".outbox_stream(r.topic, r.key) LOOP
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
    head := (SELECT e.not_before FROM :"schema".outbox_parked_events e
              WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq > floor ORDER BY e.seq LIMIT 1);
    -- Where an operator has given the event up meanwhile, its earlier outcome does not count.
    IF o.seq IS NULL OR EXISTS (SELECT FROM :"schema".outbox_parked_events e
                                 WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = o.seq
                                   AND e.tombstone IS NOT NULL AND NOT o.was_tombstone) THEN
      UPDATE :"schema".outbox_parked p SET attempts = 0, reason = NULL, sent_seq = floor,
                                                 next_attempt_at = greatest(clock_timestamp(), head), held_until = head
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
             next_attempt_at = greatest(clock_timestamp() + make_interval(secs => COALESCE(o.delay_ms, 0) / 1000.0), head), held_until = head
       WHERE p.dispatcher = my_dispatcher AND p.stream = mine AND p.state = 'parked';
    END IF;
  END LOOP;
  RETURN true;
END
$$;
