-- Takes away old history, rows of leases that were unused for long, and waiters that are gone; a bounded number at a time. One session
-- at a time, under a lock: a caller that finds a row locked which no session holds waits for it to be gone. What is younger than a minute
-- is kept whatever the caller says.
CREATE FUNCTION :"schema".lease_clean_up(keep_history bigint, idle_ms bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  before timestamptz := clock_timestamp() - make_interval(secs => greatest(idle_ms, 60000) / 1000.0);
BEGIN
  -- Until the server epoch has begun, the rows' ends are by another server's clock.
  PERFORM :"schema".ensure_incarnation();
  DELETE FROM :"schema".lease_history
   WHERE id IN (SELECT h.id FROM :"schema".lease_history h
                 WHERE h.id <= (SELECT max(m.id) FROM :"schema".lease_history m) - greatest(keep_history, 1000) ORDER BY h.id LIMIT 1000);
  DELETE FROM :"schema".lease_waiters w WHERE w.expires_at < before;
  PERFORM pg_advisory_xact_lock(:"schema".lock_id('leases', 'CleanUp:all'));
  DELETE FROM :"schema".leases
   WHERE (name, slot) IN (SELECT l.name, l.slot FROM :"schema".leases l WHERE l.expires_at < before LIMIT 1000 FOR UPDATE SKIP LOCKED);
END
$$;
