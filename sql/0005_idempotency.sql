-- compatible-from: 1
-- Answers to requests with an Idempotency-Key, one row a key. The scope comes first: a key of one tenant is not another's. Both are
-- kept as they are, so that all of a tenant can be found and deleted; the library bounds them to 255 bytes each. COLLATE "C": they
-- are compared byte by byte, whatever the database's collation, and its changes do not touch the index.
CREATE TABLE :"schema".idempotency (
  scope text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  -- SHA-256 over method, path and body of the request.
  fingerprint bytea NOT NULL,
  status integer NOT NULL,
  -- A list of pairs. Only the headers that were chosen: no cookies, no credentials.
  headers json NOT NULL,
  body bytea NOT NULL,
  created_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_expires_at ON :"schema".idempotency (expires_at);

-- What is known of a key: its answer, and until when a lease reserves it. One row.
CREATE FUNCTION :"schema".idempotency_look(
  my_scope text, my_key text, lease_name text,
  OUT fingerprint bytea, OUT status integer, OUT headers json, OUT body bytea, OUT left_ms bigint
)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  SELECT s.fingerprint, s.status, s.headers, s.body INTO fingerprint, status, headers, body FROM :"schema".idempotency s
   WHERE s.scope = my_scope AND s.key = my_key AND s.expires_at > clock_timestamp();
  left_ms := (SELECT ceil(extract(epoch FROM l.expires_at - clock_timestamp()) * 1000)::bigint FROM :"schema".leases l
               WHERE l.name = lease_name AND l.token IS NOT NULL AND l.expires_at > clock_timestamp() ORDER BY l.slot LIMIT 1);
END
$$;

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

-- Takes away what has expired, a bounded number at a time. Rows that another session works on are left to it.
CREATE FUNCTION :"schema".idempotency_clean_up(most integer) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  DELETE FROM :"schema".idempotency
   WHERE (scope, key) IN (SELECT s.scope, s.key FROM :"schema".idempotency s WHERE s.expires_at <= clock_timestamp()
                           ORDER BY s.expires_at LIMIT most FOR UPDATE SKIP LOCKED)
$$;
