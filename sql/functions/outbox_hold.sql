-- Makes parked streams wait for the time of the event at their head: none is due before it. Called where an event with a time was put
-- aside. In the order in which outbox_parked_tried() locks streams: both can be at work in one shard.
CREATE FUNCTION :"schema".outbox_hold(my_dispatcher text, streams uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  p :"schema".outbox_parked;
  head timestamptz;
BEGIN
  FOR p IN SELECT * FROM :"schema".outbox_parked o WHERE o.dispatcher = my_dispatcher AND o.stream = ANY(streams) ORDER BY o.stream FOR UPDATE LOOP
    head := (SELECT e.not_before FROM :"schema".outbox_parked_events e
              WHERE e.dispatcher = my_dispatcher AND e.stream = p.stream AND e.seq > p.sent_seq ORDER BY e.seq LIMIT 1);
    IF head IS DISTINCT FROM p.held_until THEN
      -- After a rebase there can be an earlier event at the head, which need not wait for the time of the one that was there.
      UPDATE :"schema".outbox_parked o
         SET held_until = head,
             next_attempt_at = greatest(CASE WHEN o.next_attempt_at = o.held_until THEN clock_timestamp() ELSE o.next_attempt_at END, head)
       WHERE o.dispatcher = my_dispatcher AND o.stream = p.stream;
    END IF;
  END LOOP;
END
$$;
