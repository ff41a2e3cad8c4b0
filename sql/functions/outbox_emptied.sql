-- For a replay, in the transaction in which it will read, before that: what retention has removed by now it will not read. Up to which
-- id that is; and, of one stream, whether the event is gone that it would have to send next.
CREATE FUNCTION :"schema".outbox_emptied(my_topic text, my_key text, next_seq bigint, OUT emptied_id bigint, OUT gone boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  mine uuid := :"schema".outbox_stream(my_topic, my_key);
  last_seq bigint;
BEGIN
  -- Waits for a drop that is in progress, and keeps the next one away until the read is over.
  LOCK TABLE :"schema".outbox_events IN ACCESS SHARE MODE;
  SELECT h.emptied_id INTO emptied_id FROM :"schema".outbox_home h;
  IF mine IS NOT NULL THEN
    -- First the last number: an event up to that which is not found afterwards is gone.
    last_seq := (:"schema".outbox_last(ARRAY[mine]))[1];
    gone := next_seq <= last_seq
            AND NOT EXISTS (SELECT FROM :"schema".outbox_events e WHERE e.stream = mine AND e.seq = next_seq);
  END IF;
END
$$;
