-- How far a consumer is in a stream; no row where it has not begun.
CREATE FUNCTION :"schema".inbox_position(my_consumer text, my_topic text, my_key text) RETURNS TABLE (seq bigint, uuid uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT i.seq, i.uuid FROM :"schema".inbox i WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key
$$;
