-- The names of all registered dispatchers, for roles that cannot read the table.
CREATE FUNCTION :"schema".outbox_dispatcher_names() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT d.name FROM :"schema".outbox_dispatchers d ORDER BY d.name $$;
