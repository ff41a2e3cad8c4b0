-- One row where there was a rule of exactly this prefix.
CREATE FUNCTION :"schema".rollout_unset(my_prefix text) RETURNS SETOF text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ DELETE FROM :"schema".rollout r WHERE r.prefix = my_prefix RETURNING r.prefix $$;
