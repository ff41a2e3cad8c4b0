-- The dispatchers, what they want, and from where on. Null: all topics.
CREATE FUNCTION :"schema".outbox_dispatcher_list()
RETURNS TABLE (name text, shards smallint, topics text[], topics_after bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT o.name, o.shards, o.topics, o.topics_after FROM :"schema".outbox_dispatchers o ORDER BY o.name $$;
