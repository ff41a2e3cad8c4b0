-- Stores an answer. False where there is one already that has not expired: the unique key decides, also where a rollout left the lock out.
CREATE FUNCTION :"schema".idempotency_keep(
  my_scope text, my_key text, my_fingerprint bytea, my_status integer, my_headers json, my_body bytea, ttl_ms double precision
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  INSERT INTO :"schema".idempotency AS stored (scope, key, fingerprint, status, headers, body, created_at, expires_at)
  VALUES (my_scope, my_key, my_fingerprint, my_status, my_headers, my_body, clock_timestamp(),
          clock_timestamp() + make_interval(secs => ttl_ms / 1000))
      ON CONFLICT (scope, key) DO UPDATE
     SET fingerprint = excluded.fingerprint, status = excluded.status, headers = excluded.headers, body = excluded.body,
         created_at = excluded.created_at, expires_at = excluded.expires_at
   WHERE stored.expires_at <= clock_timestamp();
  RETURN FOUND;
END
$$;
