-- Removes waiters from the queue, and wakes the one that is first now.
CREATE FUNCTION :"schema".lease_leave(tokens uuid[]) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  WITH gone AS (DELETE FROM :"schema".lease_waiters w WHERE w.token = ANY(tokens) RETURNING w.name)
  SELECT :"schema".lease_wake(names.name) FROM (SELECT DISTINCT gone.name FROM gone) AS names
$$;
