-- Retained events after a position, in the order of positions: within each stream its own.
CREATE FUNCTION :"schema".outbox_replay_after(after_id bigint, up_to bigint, my_topic text, most integer) RETURNS SETOF :"schema".outbox_events
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT * FROM :"schema".outbox_events e
   WHERE e.id > after_id AND e.id <= up_to AND (my_topic IS NULL OR e.topic = my_topic)
   ORDER BY e.id LIMIT most;
END
$$;
