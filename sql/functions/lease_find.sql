-- Who holds what now, where key, holder and metadata together contain each of some words, in whichever case; with who waits. It reads all leases
-- until it has found enough. Without the token, which is the holder's secret.
CREATE FUNCTION :"schema".lease_find(words text[], most integer)
RETURNS TABLE (name text, slot integer, permits integer, fence bigint, holder text, metadata jsonb, acquired_at timestamptz,
               expires_at timestamptz, waiters bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
  SELECT l.name, l.slot, l.permits, l.fence, l.holder, l.metadata, l.acquired_at, l.expires_at,
         (SELECT count(*) FROM :"schema".lease_waiters w WHERE w.name = l.name AND w.expires_at > clock_timestamp())
    FROM :"schema".leases l
   WHERE l.token IS NOT NULL AND l.expires_at > clock_timestamp()
     AND NOT EXISTS (SELECT FROM unnest(words) AS g(word)
                      WHERE strpos(lower(l.name || ' ' || l.holder || ' ' || COALESCE(l.metadata::text, '')), lower(g.word)) = 0)
   ORDER BY l.name, l.slot LIMIT most;
END
$$;
