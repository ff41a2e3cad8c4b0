-- The streams that wait, those that wait longest first, and behind them those that are held until next_attempt_at; of one dispatcher, or of all. Without payloads. The events of one have numbers
-- without a gap: first and last say how many there are, at the cost of two.
CREATE FUNCTION :"schema".outbox_parked_list(my_dispatcher text, most integer)
RETURNS TABLE (dispatcher text, topic text, key text, state text, attempts integer, reason text, since timestamptz,
               next_attempt_at timestamptz, events bigint, head bigint, head_id uuid)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  RETURN QUERY
  SELECT p.dispatcher, p.topic, p.key,
         CASE WHEN p.state = 'parked' AND p.held_until > clock_timestamp() THEN 'held' ELSE p.state END, p.attempts, p.reason, p.since,
         CASE WHEN p.state = 'parked' THEN p.next_attempt_at END, COALESCE(e.last - e.head + 1, 0), e.head,
         (SELECT q.uuid FROM :"schema".outbox_parked_events q
           WHERE q.dispatcher = p.dispatcher AND q.stream = p.stream AND q.seq = e.head)
    FROM :"schema".outbox_parked p
    CROSS JOIN LATERAL (SELECT min(q.seq) AS head, max(q.seq) AS last FROM :"schema".outbox_parked_events q
                         WHERE q.dispatcher = p.dispatcher AND q.stream = p.stream AND q.seq > p.sent_seq) AS e
   WHERE my_dispatcher IS NULL OR p.dispatcher = my_dispatcher
   ORDER BY (p.state = 'parked' AND p.held_until > clock_timestamp()) IS TRUE, p.since LIMIT most;
END
$$;
