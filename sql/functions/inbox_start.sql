-- Begins a stream at a number. True where that was done; false where it has begun already and force is not given.
CREATE FUNCTION :"schema".inbox_start(
  my_consumer text, my_topic text, my_key text, start bigint, force boolean DEFAULT false
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  INSERT INTO :"schema".inbox AS i (consumer, topic, key, seq) VALUES (my_consumer, my_topic, my_key, start - 1)
      ON CONFLICT (consumer, topic, key) DO UPDATE SET seq = excluded.seq, uuid = NULL, generation = NULL WHERE force;
  RETURN FOUND;
END
$$;
