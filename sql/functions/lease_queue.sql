-- Who waits for leases: for one name, or for all that begin so, first come first.
CREATE FUNCTION :"schema".lease_queue(wanted text, exactly boolean, most integer)
RETURNS TABLE (name text, holder text, since timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  IF exactly THEN
    RETURN QUERY SELECT w.name, w.holder, w.since FROM :"schema".lease_waiters w
     WHERE w.name = wanted AND w.expires_at > clock_timestamp() ORDER BY w.place LIMIT most;
  ELSE
    RETURN QUERY SELECT w.name, w.holder, w.since FROM :"schema".lease_waiters w
     WHERE starts_with(w.name, wanted) AND w.expires_at > clock_timestamp() ORDER BY w.name, w.place LIMIT most;
  END IF;
END
$$;
