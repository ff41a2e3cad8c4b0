-- Who holds what now: one name, or all that begin so. Without the token, which is the holder's secret.
CREATE FUNCTION :"schema".lease_holders(wanted text, exactly boolean, most integer)
RETURNS TABLE (name text, slot integer, permits integer, fence bigint, holder text, metadata jsonb, acquired_at timestamptz, expires_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  -- Two statements: for one name the index is used.
  IF exactly THEN
    RETURN QUERY SELECT l.name, l.slot, l.permits, l.fence, l.holder, l.metadata, l.acquired_at, l.expires_at FROM :"schema".leases l
     WHERE l.name = wanted AND l.token IS NOT NULL AND l.expires_at > clock_timestamp() ORDER BY l.slot LIMIT most;
  ELSE
    RETURN QUERY SELECT l.name, l.slot, l.permits, l.fence, l.holder, l.metadata, l.acquired_at, l.expires_at FROM :"schema".leases l
     WHERE starts_with(l.name, wanted) AND l.token IS NOT NULL AND l.expires_at > clock_timestamp() ORDER BY l.name, l.slot LIMIT most;
  END IF;
END
$$;
