-- Forgets every trial by a route: there, locks do not exclude any more.
CREATE FUNCTION :"schema".lock_trials_forget(my_route text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ DELETE FROM :"schema".lock_trials t WHERE t.route = my_route $$;
