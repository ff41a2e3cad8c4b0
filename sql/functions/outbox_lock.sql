-- outbox_lock_streams() by topics and keys, which may repeat.
CREATE FUNCTION :"schema".outbox_lock(topics text[], keys text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM :"schema".outbox_lock_streams(ARRAY(SELECT DISTINCT :"schema".outbox_stream(g.topic, g.key) FROM unnest(topics, keys) AS g(topic, key)));
END
$$;
