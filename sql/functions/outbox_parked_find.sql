-- Streams of a dispatcher that wait for another try or are blocked, by topic, key, the event at their head, and a part of the reason; in the
-- order of streams, behind one of them. Not those that have caught up, or that are held until their time. Without payloads. It looks at all streams of the dispatcher that wait.
CREATE FUNCTION :"schema".outbox_parked_find(
  my_dispatcher text, my_topic text, my_key text, my_ids uuid[], my_error text, after_stream uuid, most integer
) RETURNS TABLE (stream uuid, topic text, key text, state text, attempts integer, reason text, since timestamptz,
                 next_attempt_at timestamptz, events bigint, head bigint, head_id uuid)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  RETURN QUERY
  SELECT p.stream, p.topic, p.key, p.state, p.attempts, p.reason, p.since, CASE WHEN p.state = 'parked' THEN p.next_attempt_at END,
         COALESCE(e.last - e.head + 1, 0), e.head, h.uuid
    FROM :"schema".outbox_parked p
    CROSS JOIN LATERAL (SELECT min(q.seq) AS head, max(q.seq) AS last FROM :"schema".outbox_parked_events q
                         WHERE q.dispatcher = p.dispatcher AND q.stream = p.stream AND q.seq > p.sent_seq) AS e
    JOIN :"schema".outbox_parked_events h ON h.dispatcher = p.dispatcher AND h.stream = p.stream AND h.seq = e.head
   WHERE p.dispatcher = my_dispatcher AND p.state IN ('parked', 'blocked') AND (p.state = 'parked' AND p.held_until > clock_timestamp()) IS NOT TRUE
     AND (after_stream IS NULL OR p.stream > after_stream)
     AND (my_topic IS NULL OR p.topic = my_topic) AND (my_key IS NULL OR p.key = my_key)
     AND (my_error IS NULL OR strpos(lower(p.reason), lower(my_error)) > 0)
     AND (my_ids IS NULL OR h.uuid = ANY(my_ids))
   ORDER BY p.stream LIMIT most;
END
$$;
