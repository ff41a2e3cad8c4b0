-- Enqueues dead letters again, each at the end of its stream, and takes them out of the dead letters, of whichever dispatcher: every
-- dispatcher will get the event. Its old number went out as a tombstone and cannot be used again; headers name it. What is no longer there
-- was redriven by another session. The caller passes usable ones, 100 at most. Returns how many.
CREATE FUNCTION :"schema".outbox_redrive_dead(
  my_dispatcher text, my_streams uuid[], my_seqs bigint[], my_ids uuid[], my_reason text
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  topics text[];
  keys text[];
  payloads text[];
  bytes bytea[];
  headers text[];
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  -- First the streams, as every session that enqueues. Who redrives the same event waits here, and does not find it afterwards. Erasing
  -- keeps dead letters from being changed: either it finds the new event, or the payload is gone below.
  PERFORM :"schema".outbox_lock_streams(ARRAY(SELECT DISTINCT s FROM unnest(my_streams) AS s));
  WITH taken AS (
    DELETE FROM :"schema".outbox_dead d USING unnest(my_streams, my_seqs, my_ids) AS g(stream, seq, id)
     WHERE d.dispatcher = my_dispatcher AND d.stream = g.stream AND d.seq = g.seq AND d.uuid = g.id
       AND (d.payload IS NOT NULL OR d.bytes IS NOT NULL)
    RETURNING d.*
  ), elsewhere AS (
    DELETE FROM :"schema".outbox_dead d USING taken t, :"schema".outbox_dispatchers o
     WHERE o.name <> my_dispatcher AND d.dispatcher = o.name AND d.stream = t.stream AND d.seq = t.seq AND d.uuid = t.uuid
  ), noted AS (
    INSERT INTO :"schema".outbox_audit (verb, dispatcher, topic, key, seq, reason)
    SELECT 'redrive', my_dispatcher, t.topic, t.key, t.seq, my_reason FROM taken t ORDER BY t.stream, t.seq
  )
  SELECT array_agg(t.topic ORDER BY t.stream, t.seq), array_agg(t.key ORDER BY t.stream, t.seq),
         array_agg(t.payload::text ORDER BY t.stream, t.seq), array_agg(t.bytes ORDER BY t.stream, t.seq),
         array_agg((COALESCE(t.headers::jsonb, '{}') || jsonb_build_object('redriven-id', t.uuid, 'redriven-seq', t.seq::text))::text
                   ORDER BY t.stream, t.seq)
    INTO topics, keys, payloads, bytes, headers FROM taken t;
  IF topics IS NULL THEN
    RETURN 0;
  END IF;
  PERFORM :"schema".outbox_append_many_at(topics, keys, payloads, bytes, headers, NULL, true);
  PERFORM :"schema".outbox_ring();
  RETURN cardinality(topics);
END
$$;
