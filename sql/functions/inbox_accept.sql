-- Superseded by inbox_accept_event() since 1.0.0.
-- An event whose message does not say its generation.
CREATE FUNCTION :"schema".inbox_accept(
  my_consumer text, my_topic text, my_key text, my_seq bigint, my_uuid uuid, tombstone boolean DEFAULT false, start bigint DEFAULT 1
) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT :"schema".inbox_accept_event(my_consumer, my_topic, my_key, my_seq, my_uuid, tombstone, start, NULL) $$;
