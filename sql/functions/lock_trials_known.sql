-- What is remembered of trials, such as `direct 2,pooled 1`.
CREATE FUNCTION :"schema".lock_trials_known(my_system bigint, my_route text, my_strategy text, least_version integer) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT string_agg(CASE WHEN t.pooled THEN 'pooled ' ELSE 'direct ' END || t.connections, ',') FROM :"schema".lock_trials t
   WHERE t.system = my_system AND t.route = my_route AND t.strategy = my_strategy AND t.version >= least_version
$$;
