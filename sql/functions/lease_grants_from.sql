-- When a lease that is not held can be granted: a moment that has passed, unless the server epoch began on another timeline a moment ago.
-- Begins the epoch where none has begun: until then the rows' ends are by another server's clock. Null where the ttl is longer than the
-- schema allows. A dispatcher's shards wait for their own ttl; the lease by which it shows that it is alive has a random name, and the seats of
-- drains only count them. No other lease has such a name: the library rejects it.
CREATE FUNCTION :"schema".lease_grants_from(wanted text, wanted_ttl_ms integer) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SET jit = off
AS $$
DECLARE
  e record;
BEGIN
  SELECT p.* INTO e FROM :"schema".epoch p CROSS JOIN :"schema".incarnation;
  IF NOT FOUND THEN
    PERFORM :"schema".ensure_incarnation();
    SELECT p.* INTO e FROM :"schema".epoch p;
  END IF;
  RETURN CASE
    WHEN wanted_ttl_ms > COALESCE(e.granted_ttl_ms, e.max_ttl_ms) THEN NULL
    WHEN e.grants_from IS NULL OR wanted LIKE 'Outbox:%:member:%' OR wanted LIKE 'Outbox:%:drain:%' THEN '-infinity'
    WHEN wanted LIKE 'Outbox:%:shard:%' THEN least(e.grants_from, e.began_at + make_interval(secs => wanted_ttl_ms / 1000.0))
    ELSE e.grants_from
  END;
END
$$;
