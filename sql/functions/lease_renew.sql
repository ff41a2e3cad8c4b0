-- Renews leases, many at once. It does not wait for a row that another session has locked: the others must not expire meanwhile.
-- By fence as well as by token: a question that was long on its way may have taken a lost lease again under its old token.
CREATE FUNCTION :"schema".lease_renew(names text[], tokens uuid[], fences bigint[], ttls_ms integer[])
RETURNS TABLE (renewed_token uuid, outcome text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  -- Until the server epoch has begun, the rows' ends are by another server's clock.
  IF NOT EXISTS (SELECT FROM :"schema".incarnation) THEN
    PERFORM :"schema".ensure_incarnation();
  END IF;
  -- A renewal that a crash could undo would leave a holder that trusts what the row does not say.
  PERFORM set_config('synchronous_commit', 'on', true);
  RETURN QUERY
  WITH given AS (
    SELECT * FROM unnest(names, tokens, fences, ttls_ms) AS g(name, token, fence, ttl_ms)
  ), mine AS (
    SELECT l.name, l.slot, given.ttl_ms
      FROM given JOIN :"schema".leases l ON l.name = given.name AND l.token = given.token AND l.fence = given.fence
     WHERE l.expires_at > clock_timestamp()
       FOR NO KEY UPDATE OF l SKIP LOCKED
  ), renewed AS (
    UPDATE :"schema".leases l SET expires_at = clock_timestamp() + make_interval(secs => mine.ttl_ms / 1000.0), ttl_ms = mine.ttl_ms
      FROM mine WHERE l.name = mine.name AND l.slot = mine.slot
    RETURNING l.token
  )
  SELECT given.token,
         CASE WHEN renewed.token IS NOT NULL THEN 'renewed'
              WHEN EXISTS (SELECT FROM :"schema".leases l
                            WHERE l.name = given.name AND l.token = given.token AND l.fence = given.fence
                              AND l.expires_at > clock_timestamp()) THEN 'unknown'
              ELSE 'lost' END
    FROM given LEFT JOIN renewed ON renewed.token = given.token;
END
$$;
