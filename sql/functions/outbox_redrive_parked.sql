-- Has several streams tried again now, as outbox_operate() does with one, and writes each down. Streams that a session is busy with are
-- passed over: dispatchers lock several in another order. One stream alone is waited for. Returns the streams that are due now.
CREATE FUNCTION :"schema".outbox_redrive_parked(my_dispatcher text, my_streams uuid[], my_reason text) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  mine uuid[];
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  -- Not while it is removed.
  PERFORM FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher FOR KEY SHARE;
  IF cardinality(my_streams) = 1 THEN
    PERFORM FROM :"schema".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.stream = my_streams[1] FOR UPDATE;
  END IF;
  mine := ARRAY(SELECT p.stream FROM :"schema".outbox_parked p
                 WHERE p.dispatcher = my_dispatcher AND p.stream = ANY(my_streams) AND p.state IN ('parked', 'blocked')
                   -- What was never tried, and is not due, is not meant.
                   AND (p.state = 'parked' AND p.held_until > clock_timestamp()) IS NOT TRUE
                   FOR UPDATE SKIP LOCKED);
  INSERT INTO :"schema".outbox_audit (verb, dispatcher, topic, key, seq, reason)
  SELECT 'redrive', my_dispatcher, p.topic, p.key,
         (SELECT min(e.seq) FROM :"schema".outbox_parked_events e
           WHERE e.dispatcher = my_dispatcher AND e.stream = p.stream AND e.seq > p.sent_seq), my_reason
    FROM :"schema".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.stream = ANY(mine);
  UPDATE :"schema".outbox_parked p SET state = 'parked', attempts = 0, next_attempt_at = clock_timestamp()
   WHERE p.dispatcher = my_dispatcher AND p.stream = ANY(mine);
  PERFORM :"schema".outbox_ring();
  RETURN mine;
END
$$;
