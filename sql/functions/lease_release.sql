-- Gives a lease back. False where it was not held any more. That a crash could undo it only means that it expires instead.
CREATE FUNCTION :"schema".lease_release(held text, my_token uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  mine :"schema".leases;
BEGIN
  SELECT * INTO mine FROM :"schema".leases l WHERE l.name = held AND l.token = my_token FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE :"schema".leases l SET token = NULL, expires_at = clock_timestamp() WHERE l.name = mine.name AND l.slot = mine.slot;
  IF mine.remembered THEN
    INSERT INTO :"schema".lease_history (name, slot, fence, holder, metadata, acquired_at, ended_at, ending)
    VALUES (mine.name, mine.slot, mine.fence, mine.holder, mine.metadata, mine.acquired_at,
            least(mine.expires_at, clock_timestamp()),
            CASE WHEN mine.expires_at > clock_timestamp() THEN 'released' ELSE 'expired' END);
  END IF;
  PERFORM :"schema".lease_wake(held);
  RETURN mine.expires_at > clock_timestamp();
END
$$;
