-- The two settings of the schema that count after a failover.
CREATE FUNCTION :"schema".failover_settings(OUT max_ttl_ms integer, OUT synchronous_failover boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT e.max_ttl_ms, e.synchronous_failover FROM :"schema".epoch e $$;
