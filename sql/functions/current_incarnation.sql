-- The current server epoch as the table has it, without beginning a new one. Null after a crash.
CREATE FUNCTION :"schema".current_incarnation() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT i.value::text FROM :"schema".incarnation i $$;
