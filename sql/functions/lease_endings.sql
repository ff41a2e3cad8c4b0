-- How the last leases of a name ended, the newest first.
CREATE FUNCTION :"schema".lease_endings(wanted text, most integer) RETURNS SETOF :"schema".lease_history
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT * FROM :"schema".lease_history h WHERE h.name = wanted ORDER BY h.id DESC LIMIT most $$;
