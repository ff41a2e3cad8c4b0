-- (By index, here and below: tables that were emptied a moment ago look small to the planner, and are read from end to end.)
-- Moves a shard's cursor: from the version that the caller has read, with its fence, in the same life of the server. What the caller
-- remembers of a life that has ended (transaction ids above all) is worth nothing. In the same step, the events of streams that wait
-- are put aside: waiting is a list of { topic, key, seqs, reason, state, attempts, delay_ms }.
CREATE FUNCTION :"schema".outbox_advance(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_version bigint, my_life text,
  new_prev pg_snapshot, new_next pg_snapshot, new_after bigint, new_done boolean, new_seen bigint,
  waiting jsonb DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
BEGIN
  -- Not before it is sent, only that it is sent: what a crash takes back is sent once more.
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM pg_advisory_xact_lock_shared(:"schema".outbox_shard_lock(my_dispatcher, my_shard));
  IF NOT EXISTS (SELECT FROM :"schema".outbox_here(my_dispatcher) AS h WHERE h.life = my_life AND NOT h.elsewhere) THEN
    RETURN false;
  END IF;
  INSERT INTO :"schema".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
  SELECT my_dispatcher, my_shard, my_version + 1, my_fence, new_prev, new_next, new_after, new_done, new_seen
    FROM (SELECT o.version, o.fence FROM :"schema".outbox_cursors o
           WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1) AS c
   WHERE c.version = my_version AND c.fence = my_fence
      ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF my_version % 100 = 0 THEN
    -- Not all that there ever were, but now and then: deleted ones stay in the index while a session holds an old snapshot.
    DELETE FROM :"schema".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard AND o.version < my_version
       AND o.version >= my_version - CASE WHEN my_version % 10000 = 0 THEN my_version ELSE 300 END;
  END IF;
  IF waiting IS NOT NULL THEN
    -- Before the events are read: whoever erases payloads waits for copies that are being made, and they for it.
    LOCK TABLE :"schema".outbox_parked_events IN ROW EXCLUSIVE MODE;
    INSERT INTO :"schema".outbox_parked (dispatcher, stream, shard, topic, key, state, attempts, reason, next_attempt_at, sent_seq)
    SELECT my_dispatcher, :"schema".outbox_stream(w.topic, w.key), my_shard, w.topic, w.key, COALESCE(w.state, 'parked'),
           COALESCE(w.attempts, 0), w.reason, clock_timestamp() + make_interval(secs => COALESCE(w.delay_ms, 0) / 1000.0),
           (SELECT min(s.seq) - 1 FROM unnest(w.seqs) AS s(seq))
      FROM jsonb_to_recordset(waiting)
             AS w(topic text, key text, seqs bigint[], state text, attempts integer, reason text, delay_ms float8)
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
