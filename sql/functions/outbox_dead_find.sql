-- Dead letters, by dispatcher, topic, key, id, and a part of the reason; in the order of dispatchers, streams and numbers, behind one of
-- them. Without payloads. usable: it can be enqueued again. Not so what was erased, what has become too large, and what has malformed headers.
-- 200: two more headers have room. It looks at all dead letters behind that one, of the dispatcher if one is named, until it has found enough.
CREATE FUNCTION :"schema".outbox_dead_find(
  my_dispatcher text, my_topic text, my_key text, my_ids uuid[], my_error text,
  after_dispatcher text, after_stream uuid, after_seq bigint, most integer
) RETURNS TABLE (dispatcher text, stream uuid, topic text, key text, seq bigint, uuid uuid, enqueued_at timestamptz, died_at timestamptz,
                 reason text, stored bigint, usable boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT d.dispatcher, d.stream, d.topic, d.key, d.seq, d.uuid, d.enqueued_at, d.died_at, d.reason, s.stored,
         (d.payload IS NOT NULL OR d.bytes IS NOT NULL) 
         AND (s.stored < (:"schema".outbox_max_event_bytes() - 200) / 512
              OR (s.stored <= :"schema".outbox_max_event_bytes() - 200
                  AND COALESCE(octet_length(d.bytes), octet_length(d.payload::text))::bigint + COALESCE(octet_length(d.headers::text), 0)
                      <= :"schema".outbox_max_event_bytes() - 200))
         AND (d.headers IS NULL OR :"schema".outbox_plain_headers(d.headers::text)
              OR (json_typeof(d.headers) = 'object' AND NOT EXISTS (
                    SELECT FROM json_each(CASE WHEN json_typeof(d.headers) = 'object' THEN d.headers END) AS h
                     WHERE json_typeof(h.value) <> 'string')))
    FROM :"schema".outbox_dead d
    CROSS JOIN LATERAL (SELECT :"schema".outbox_stored_bytes(d.payload, d.bytes, d.headers) AS stored) AS s
   WHERE (my_dispatcher IS NULL OR d.dispatcher = my_dispatcher)
     AND (after_dispatcher IS NULL OR (d.dispatcher, d.stream, d.seq) > (after_dispatcher, after_stream, after_seq))
     AND (my_topic IS NULL OR d.topic = my_topic) AND (my_key IS NULL OR d.key = my_key)
     AND (my_error IS NULL OR strpos(lower(d.reason), lower(my_error)) > 0)
     AND (my_ids IS NULL OR d.uuid = ANY(my_ids))
   ORDER BY d.dispatcher, d.stream, d.seq LIMIT most;
END
$$;
