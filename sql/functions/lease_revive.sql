-- Holds leases again that their holder let rest: it did not renew them, so they expired and other callers can take them. No other caller took a
-- row that still has the holder's token and fence. A locked row is being taken. After a promotion, the row of a later holder can be missing:
-- then the lease is granted at the time at which any caller would get it.
CREATE FUNCTION :"schema".lease_revive(names text[], tokens uuid[], fences bigint[], ttls_ms integer[])
RETURNS TABLE (revived_token uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM :"schema".incarnation) THEN
    PERFORM :"schema".ensure_incarnation();
  END IF;
  PERFORM set_config('synchronous_commit', 'on', true);
  RETURN QUERY
  WITH mine AS (
    SELECT l.name, l.slot, g.ttl_ms
      FROM unnest(names, tokens, fences, ttls_ms) AS g(name, token, fence, ttl_ms)
      JOIN :"schema".leases l ON l.name = g.name AND l.token = g.token AND l.fence = g.fence
     WHERE l.expires_at > clock_timestamp() OR clock_timestamp() >= :"schema".lease_grants_from(g.name, g.ttl_ms)
       FOR NO KEY UPDATE OF l SKIP LOCKED
  )
  UPDATE :"schema".leases l SET expires_at = clock_timestamp() + make_interval(secs => mine.ttl_ms / 1000.0), ttl_ms = mine.ttl_ms
    FROM mine WHERE l.name = mine.name AND l.slot = mine.slot
  RETURNING l.token;
END
$$;
