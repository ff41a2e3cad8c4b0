-- Retained events of one stream from a number on.
CREATE FUNCTION :"schema".outbox_replay_stream(
  my_topic text, my_key text, from_seq bigint, to_seq bigint, up_to bigint, most integer
) RETURNS SETOF :"schema".outbox_events
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT * FROM :"schema".outbox_events e
   WHERE e.stream = :"schema".outbox_stream(my_topic, my_key)
     AND e.seq >= from_seq AND e.id <= up_to AND (to_seq IS NULL OR e.seq <= to_seq)
   ORDER BY e.seq LIMIT most;
END
$$;
