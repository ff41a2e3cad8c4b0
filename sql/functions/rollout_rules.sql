-- All rollout rules, for roles that cannot read the table.
CREATE FUNCTION :"schema".rollout_rules() RETURNS SETOF :"schema".rollout
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT * FROM :"schema".rollout r ORDER BY r.prefix $$;
