-- Takes streams that have caught up out of the list. Only between two reads of the shard: what was read before has been parked.
CREATE FUNCTION :"schema".outbox_unpark(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, topics text[], keys text[]
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
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
