-- The event at the head of a stream that waits. What is larger than max_bytes is left where it is: first by what is stored, so that
-- nothing huge is unpacked.
CREATE FUNCTION :"schema".outbox_head(my_dispatcher text, my_topic text, my_key text, max_bytes integer)
RETURNS TABLE (seq bigint, uuid uuid, enqueued_at timestamptz, headers json, tombstone text, size bigint, payload text, hex text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  RETURN QUERY
  SELECT e.seq, e.uuid, e.enqueued_at, CASE WHEN s.bytes <= max_bytes THEN e.headers END, e.tombstone, s.bytes,
         CASE WHEN s.bytes <= max_bytes THEN e.payload::text END, CASE WHEN s.bytes <= max_bytes THEN encode(e.bytes, 'hex') END
    FROM (SELECT q.*, :"schema".outbox_stored_bytes(q.payload, q.bytes, q.headers) AS stored FROM :"schema".outbox_parked_events q
           WHERE q.dispatcher = my_dispatcher AND q.stream = :"schema".outbox_stream(my_topic, my_key)
           ORDER BY q.seq LIMIT 1) AS e
    CROSS JOIN LATERAL (
      SELECT CASE WHEN e.stored > max_bytes THEN e.stored
                  ELSE coalesce(octet_length(e.bytes), octet_length(e.payload::text))::bigint
                       + coalesce(octet_length(e.headers::text), 0)
             END AS bytes
    ) AS s;
END
$$;
