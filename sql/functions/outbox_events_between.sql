-- Events of all streams for people who look: those whose position is in a range, by topic and time, in the order of positions or against it.
-- Without payloads and headers. The range bounds the cost: the index of positions finds its blocks, and all events in it are read. A
-- transaction that is still open can add events to a range that was read.
CREATE FUNCTION :"schema".outbox_events_between(
  after_id bigint, up_to bigint, my_topic text, from_at timestamptz, to_at timestamptz, newest_first boolean, max_events integer
) RETURNS TABLE (id bigint, seq bigint, topic text, key text, uuid uuid, enqueued_at timestamptz, erased boolean, stored bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT e.id, e.seq, e.topic, e.key, e.uuid, e.enqueued_at, e.erased, :"schema".outbox_stored_bytes(e.payload, e.bytes, e.headers)
    FROM :"schema".outbox_events e
   WHERE e.id > after_id AND e.id <= up_to AND (my_topic IS NULL OR e.topic = my_topic)
     AND (from_at IS NULL OR e.enqueued_at >= from_at) AND (to_at IS NULL OR e.enqueued_at < to_at)
   ORDER BY CASE WHEN newest_first THEN -e.id ELSE e.id END LIMIT max_events;
END
$$;
