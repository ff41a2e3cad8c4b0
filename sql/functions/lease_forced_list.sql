-- Leases that were taken away, the newest first, before one of them. It reads the history, which is bounded, until it has found enough.
CREATE FUNCTION :"schema".lease_forced_list(before_id bigint, my_key text, my_name text, most integer)
RETURNS SETOF :"schema".lease_history
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT h.* FROM :"schema".lease_history h
   WHERE (before_id IS NULL OR h.id < before_id) AND h.ending = 'forced' AND (my_key IS NULL OR h.name = my_key)
     AND (my_name IS NULL OR strpos(lower(COALESCE(h.ended_by, '')), lower(my_name)) > 0)
   ORDER BY h.id DESC LIMIT most;
END
$$;
