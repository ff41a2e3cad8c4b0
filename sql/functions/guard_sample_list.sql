-- The newest samples of a guard.
CREATE FUNCTION :"schema".guard_sample_list(my_guard integer, most integer) RETURNS SETOF :"schema".guard_samples
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT * FROM :"schema".guard_samples s WHERE s.guard = my_guard ORDER BY s.at DESC LIMIT most $$;
