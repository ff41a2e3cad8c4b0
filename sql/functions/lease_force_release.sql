-- Takes a lease away from its holder, all slots of it. Changing the fence waits for the holder's open transactions; so do slots that
-- were released while one was open.
CREATE FUNCTION :"schema".lease_force_release(held text, forced_by text, forced_reason text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  mine :"schema".leases;
  released integer := 0;
BEGIN
  -- Before the rows are locked: the session that begins the server epoch updates them.
  PERFORM :"schema".ensure_incarnation();
  PERFORM set_config('synchronous_commit', 'on', true);
  FOR mine IN SELECT * FROM :"schema".leases l WHERE l.name = held AND l.token IS NOT NULL ORDER BY l.slot FOR UPDATE LOOP
    UPDATE :"schema".leases l SET token = NULL, fence = :"schema".next_fence(), expires_at = clock_timestamp()
     WHERE l.name = mine.name AND l.slot = mine.slot;
    INSERT INTO :"schema".lease_history
      (name, slot, fence, holder, metadata, acquired_at, ended_at, ending, ended_by, reason)
    VALUES (mine.name, mine.slot, mine.fence, mine.holder, mine.metadata, mine.acquired_at, clock_timestamp(),
            'forced', forced_by, forced_reason);
    released := released + 1;
  END LOOP;
  PERFORM FROM :"schema".leases l WHERE l.name = held AND l.token IS NULL ORDER BY l.slot FOR UPDATE;
  PERFORM :"schema".lease_wake(held);
  RETURN released;
END
$$;
