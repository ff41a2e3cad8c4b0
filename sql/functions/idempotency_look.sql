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
