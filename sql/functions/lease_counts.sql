-- How many names are held, how many sessions wait, how many names are one or the other.
CREATE FUNCTION :"schema".lease_counts(OUT held bigint, OUT waiting bigint, OUT names bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  WITH held AS MATERIALIZED (
    SELECT DISTINCT l.name FROM :"schema".leases l WHERE l.token IS NOT NULL AND l.expires_at > clock_timestamp()
  ), waiting AS MATERIALIZED (
    SELECT w.name FROM :"schema".lease_waiters w WHERE w.expires_at > clock_timestamp()
  )
  SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM waiting),
         (SELECT count(*) FROM (SELECT h.name FROM held h UNION SELECT w.name FROM waiting w) AS each)
$$;
