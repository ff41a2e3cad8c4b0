-- The two settings of the schema that count after a failover. The ttl is the one that is granted: less than what was asked for while a standby lacks that.
CREATE FUNCTION :"schema".failover_settings(OUT max_ttl_ms integer, OUT synchronous_failover boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT COALESCE(e.granted_ttl_ms, e.max_ttl_ms), e.synchronous_failover FROM :"schema".epoch e $$;
