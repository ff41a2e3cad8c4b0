-- How far consumers are, in the order of consumer, topic and key, behind one row; of one consumer, topic or key. With a consumer it is found on
-- the index.
CREATE FUNCTION :"schema".inbox_list(
  my_consumer text, my_topic text, my_key text, after_consumer text, after_topic text, after_key text, most integer
) RETURNS SETOF :"schema".inbox
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT i.* FROM :"schema".inbox i
   WHERE (my_consumer IS NULL OR i.consumer = my_consumer) AND (my_topic IS NULL OR i.topic = my_topic)
     AND (my_key IS NULL OR i.key = my_key)
     AND (after_consumer IS NULL OR (i.consumer, i.topic, i.key) > (after_consumer, after_topic, after_key))
   ORDER BY i.consumer, i.topic, i.key LIMIT most;
END
$$;
