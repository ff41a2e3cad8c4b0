-- An operator's verbs. Each is written down with who and why. my_seq and my_id: the event at the head that the operator has seen, for skip.
-- On a server that is behind, another event can have its number.
CREATE FUNCTION :"schema".outbox_operate(
  verb text, my_dispatcher text, my_topic text, my_key text, my_seq bigint, my_reason text, my_id uuid DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  mine uuid := :"schema".outbox_stream(my_topic, my_key);
  d :"schema".outbox_dispatchers;
  p :"schema".outbox_parked;
  head bigint;
  head_id uuid;
  head_time timestamptz;
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  -- Not while it is removed: what is paused then would be left behind.
  SELECT * INTO d FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN 'no dispatcher';
  END IF;
  IF verb = 'pause' THEN
    INSERT INTO :"schema".outbox_parked AS o (dispatcher, stream, shard, topic, key, state, reason)
    VALUES (my_dispatcher, mine, :"schema".outbox_shard(:"schema".outbox_bucket(mine), d.shards), my_topic, my_key, 'paused', my_reason)
        ON CONFLICT (dispatcher, stream) DO UPDATE SET state = 'paused', reason = EXCLUDED.reason;
  ELSE
    SELECT * INTO p FROM :"schema".outbox_parked o WHERE o.dispatcher = my_dispatcher AND o.stream = mine FOR UPDATE;
    IF NOT FOUND OR (verb = 'resume') <> (p.state = 'paused') THEN
      RETURN CASE WHEN p.state = 'paused' THEN 'paused' WHEN p.state IS NULL THEN 'not parked' ELSE 'not paused' END;
    END IF;
    IF verb = 'skip' THEN
      SELECT e.seq, e.uuid INTO head, head_id FROM :"schema".outbox_parked_events e
       WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq > p.sent_seq ORDER BY e.seq LIMIT 1;
      -- The operator has seen this one at the head; by now it may have got through.
      IF head IS DISTINCT FROM my_seq OR head_id <> my_id THEN
        RETURN 'not at the head';
      END IF;
      UPDATE :"schema".outbox_parked_events e SET tombstone = 'skipped', payload = NULL, bytes = NULL, not_before = NULL
       WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = head;
    ELSIF verb = 'retry' THEN
      -- Released, if it is held: those behind it keep their times.
      UPDATE :"schema".outbox_parked_events e SET not_before = NULL
       WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.not_before > clock_timestamp()
         AND e.seq = (SELECT min(q.seq) FROM :"schema".outbox_parked_events q
                       WHERE q.dispatcher = my_dispatcher AND q.stream = mine AND q.seq > p.sent_seq);
    END IF;
    -- Not the time that the row has: while the stream was paused, a try that was in progress can have brought another event to the head.
    head_time := (SELECT e.not_before FROM :"schema".outbox_parked_events e
                   WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq > p.sent_seq ORDER BY e.seq LIMIT 1);
    UPDATE :"schema".outbox_parked o
       SET state = 'parked', attempts = 0, held_until = head_time, next_attempt_at = greatest(clock_timestamp(), head_time)
     WHERE o.dispatcher = my_dispatcher AND o.stream = mine;
  END IF;
  INSERT INTO :"schema".outbox_audit (verb, dispatcher, topic, key, seq, reason)
  VALUES (verb, my_dispatcher, my_topic, my_key, head, my_reason);
  -- So rarely that it may be in the transaction.
  PERFORM :"schema".outbox_ring();
  RETURN 'done';
END
$$;
