-- The positions of a consumer, by topic and key, after a stream. Null for the topic: of all topics.
CREATE FUNCTION :"schema".inbox_position_list(my_consumer text, my_topic text, after_topic text, after_key text, most integer)
RETURNS TABLE (topic text, key text, seq bigint, uuid uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT i.topic, i.key, i.seq, i.uuid FROM :"schema".inbox i
   WHERE i.consumer = my_consumer AND (my_topic IS NULL OR i.topic = my_topic)
     AND (i.topic, i.key) > (after_topic COLLATE "C", after_key COLLATE "C")
   ORDER BY i.topic, i.key LIMIT most
$$;
