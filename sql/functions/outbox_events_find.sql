-- Events for people who look, also by a header: those whose position is in a range, by topic, key, number, time, and the value of one header.
-- Without payloads and headers. The range bounds the cost: all events in it are read. Only for roles that can read headers.
CREATE FUNCTION :"schema".outbox_events_find(
  after_id bigint, up_to bigint, my_topic text, my_key text, from_seq bigint, to_seq bigint, from_at timestamptz, to_at timestamptz,
  header_name text, header_value text, newest_first boolean, max_events integer
) RETURNS TABLE (id bigint, seq bigint, topic text, key text, uuid uuid, enqueued_at timestamptz, erased boolean, stored bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT e.id, e.seq, e.topic, e.key, e.uuid, e.enqueued_at, e.erased, :"schema".outbox_stored_bytes(e.payload, e.bytes, e.headers)
    FROM :"schema".outbox_events e
   WHERE e.id > after_id AND e.id <= up_to AND (my_topic IS NULL OR e.topic = my_topic) AND (my_key IS NULL OR e.key = my_key)
     AND (from_seq IS NULL OR e.seq >= from_seq) AND (to_seq IS NULL OR e.seq <= to_seq)
     AND (from_at IS NULL OR e.enqueued_at >= from_at) AND (to_at IS NULL OR e.enqueued_at < to_at)
     AND e.headers ->> header_name = header_value
   ORDER BY CASE WHEN newest_first THEN -e.id ELSE e.id END LIMIT max_events;
END
$$;
