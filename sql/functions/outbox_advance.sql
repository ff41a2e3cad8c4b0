-- Moves a shard's cursor, if outbox_move() allows it, and in the same step puts the events of streams that wait aside. waiting is a list of
-- { topic, key, seqs, reason, state, attempts, delay_ms }.
CREATE FUNCTION :"schema".outbox_advance(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_version bigint, my_life text,
  new_prev pg_snapshot, new_next pg_snapshot, new_after bigint, new_done boolean, new_seen bigint,
  waiting jsonb DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  held uuid[];
BEGIN
  IF :"schema".outbox_move(my_dispatcher, ARRAY[my_shard], ARRAY[my_fence], ARRAY[my_version], ARRAY[my_life], ARRAY[new_prev], ARRAY[new_next],
                           ARRAY[new_after], ARRAY[new_done], ARRAY[new_seen]) = 0 THEN
    RETURN false;
  END IF;
  IF waiting IS NOT NULL THEN
    -- Before the events are read: an erase of payloads waits for copies that are being made, and they wait for it.
    LOCK TABLE :"schema".outbox_parked_events IN ROW EXCLUSIVE MODE;
    INSERT INTO :"schema".outbox_parked (dispatcher, stream, shard, topic, key, state, attempts, reason, next_attempt_at, sent_seq)
    SELECT my_dispatcher, :"schema".outbox_stream(w.topic, w.key), my_shard, w.topic, w.key, COALESCE(w.state, 'parked'),
           COALESCE(w.attempts, 0), w.reason, clock_timestamp() + make_interval(secs => COALESCE(w.delay_ms, 0) / 1000.0),
           (SELECT min(s.seq) - 1 FROM unnest(w.seqs) AS s(seq))
      FROM jsonb_to_recordset(waiting)
             AS w(topic text, key text, seqs bigint[], state text, attempts integer, reason text, delay_ms float8)
        ON CONFLICT DO NOTHING;
    WITH copied AS (
      INSERT INTO :"schema".outbox_parked_events
      SELECT my_dispatcher, e.stream, e.seq, e.id, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers,
             CASE WHEN e.erased THEN 'erased' END, e.not_before
        FROM jsonb_to_recordset(waiting) AS w(topic text, key text, seqs bigint[])
        CROSS JOIN LATERAL unnest(w.seqs) AS s(seq)
        JOIN :"schema".outbox_events e ON e.stream = :"schema".outbox_stream(w.topic, w.key) AND e.seq = s.seq
          ON CONFLICT DO NOTHING RETURNING stream, not_before)
    SELECT array_agg(DISTINCT c.stream) INTO held FROM copied c WHERE c.not_before IS NOT NULL;
    IF held IS NOT NULL THEN
      PERFORM :"schema".outbox_hold(my_dispatcher, held);
    END IF;
  END IF;
  RETURN true;
END
$$;
