-- At the beginning of a server epoch on another timeline: leases that were held at the last known moment of the old epoch are held for their
-- ttl from now on, by this server's clock. The rows' ends and that moment are by the old server's. After a restart it is not known which was the last
-- transaction that recovery replayed. And after two promotions between which no epoch began, that transaction is by a third server's clock. Then the
-- latest renewal counts, which is earlier, so that more rows are held.
-- Others are not granted for as long as a holder could trust one whose row was lost.
CREATE FUNCTION :"schema".lease_carry_over() RETURNS void
LANGUAGE plpgsql VOLATILE SET jit = off
AS $$
DECLARE
  last_known timestamptz := COALESCE(
    CASE WHEN (SELECT p.timeline FROM :"schema".epoch p) = (SELECT s.timeline + 1 FROM :"schema".epochs s ORDER BY s.number DESC LIMIT 1)
         THEN pg_last_xact_replay_timestamp() END,
    (SELECT max(l.expires_at - make_interval(secs => l.ttl_ms / 1000.0)) FROM :"schema".leases l WHERE l.token IS NOT NULL));
BEGIN
  -- In one statement: the new ends are by another clock than last_known. All others are over, also where this server's clock is behind.
  UPDATE :"schema".leases l
     SET expires_at = CASE WHEN l.expires_at > COALESCE(last_known, '-infinity')
                           THEN clock_timestamp() + make_interval(secs => COALESCE(l.ttl_ms, 86400000) / 1000.0)
                           ELSE least(l.expires_at, clock_timestamp()) END
   WHERE l.token IS NOT NULL;
  -- A waiter's row lasts 6 seconds without a heartbeat. Rows of waiters that are gone must not become valid again: each would block its queue.
  UPDATE :"schema".lease_waiters w
     SET expires_at = CASE WHEN w.expires_at > COALESCE(last_known, '-infinity') THEN clock_timestamp() + interval '6 seconds'
                           ELSE least(w.expires_at, clock_timestamp()) END;
  UPDATE :"schema".epoch e
     SET began_at = clock_timestamp(),
         grants_from = CASE WHEN NOT e.synchronous_failover
                            THEN clock_timestamp() + make_interval(secs => e.max_ttl_ms / 1000.0) END;
END
$$;
