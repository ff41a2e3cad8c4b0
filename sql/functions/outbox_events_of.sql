-- Events of one stream for people who look: by number and time, the oldest or the newest first. Without payloads and headers. It reads at
-- most max_scanned events on the index of the stream; scanned says how many, and last_seq how far it came, also where none fits: then
-- the row has no event.
CREATE FUNCTION :"schema".outbox_events_of(
  my_topic text, my_key text, from_seq bigint, to_seq bigint, from_at timestamptz, to_at timestamptz, newest_first boolean,
  max_events integer, max_scanned integer
) RETURNS TABLE (id bigint, seq bigint, topic text, key text, uuid uuid, enqueued_at timestamptz, erased boolean, stored bigint,
                 scanned bigint, last_seq bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  mine uuid := :"schema".outbox_stream(my_topic, my_key);
  lowest bigint := COALESCE(from_seq, 1);
  highest bigint := COALESCE(to_seq, 9223372036854775807);
  direction integer := CASE WHEN newest_first THEN -1 ELSE 1 END;
BEGIN
  RETURN QUERY
  WITH looked AS MATERIALIZED (
    (SELECT e.* FROM :"schema".outbox_events e
      WHERE NOT newest_first AND e.stream = mine AND e.seq >= lowest AND e.seq <= highest ORDER BY e.seq LIMIT max_scanned)
    UNION ALL
    (SELECT e.* FROM :"schema".outbox_events e
      WHERE newest_first AND e.stream = mine AND e.seq >= lowest AND e.seq <= highest ORDER BY e.seq DESC LIMIT max_scanned)
  ), fitting AS (
    SELECT l.* FROM looked l
     WHERE (from_at IS NULL OR l.enqueued_at >= from_at) AND (to_at IS NULL OR l.enqueued_at < to_at)
     ORDER BY l.seq * direction LIMIT max_events
  ), summed AS (
    SELECT count(*) AS scanned, max(l.seq * direction) * direction AS last_seq FROM looked l
  )
  SELECT f.id, f.seq, f.topic, f.key, f.uuid, f.enqueued_at, f.erased, :"schema".outbox_stored_bytes(f.payload, f.bytes, f.headers),
         s.scanned, s.last_seq
    FROM summed s LEFT JOIN fitting f ON true ORDER BY f.seq * direction;
END
$$;
