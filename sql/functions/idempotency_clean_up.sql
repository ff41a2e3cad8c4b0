-- Takes away what has expired, a bounded number at a time. Rows that another session works on are left to it.
CREATE FUNCTION :"schema".idempotency_clean_up(most integer) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  DELETE FROM :"schema".idempotency
   WHERE (scope, key) IN (SELECT s.scope, s.key FROM :"schema".idempotency s WHERE s.expires_at <= clock_timestamp()
                           ORDER BY s.expires_at LIMIT most FOR UPDATE SKIP LOCKED)
$$;
