-- The last place that was given out; 0 before the first.
CREATE FUNCTION :"schema".outbox_position() RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END FROM :"schema".outbox_ids s $$;
