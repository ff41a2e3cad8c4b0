-- Shards without a valid lease because their owner is idle and lets them rest, and that owner. If no dispatcher listens any more, no owner
-- takes them again.
CREATE FUNCTION :"schema".outbox_resting() RETURNS TABLE (name text, holder text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT l.name, l.holder FROM :"schema".leases l
   WHERE l.name LIKE 'Outbox:%:shard:%' AND l.token IS NOT NULL AND l.expires_at <= clock_timestamp()
     AND EXISTS (SELECT FROM :"schema".outbox_listeners o WHERE o.until > clock_timestamp())
$$;
