-- Keeps waiters in the queue and returns which of them should try, and how long until the next lease ends.
CREATE FUNCTION :"schema".lease_look(tokens uuid[], permits integer[], keep_ms integer)
RETURNS TABLE (waiting_token uuid, ready boolean, left_ms double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  -- As in lease_take(), for a waiter whose ttl is not known here: at worst it is asked for once too often.
  grants_from timestamptz := :"schema".lease_grants_from('', 0);
BEGIN
  UPDATE :"schema".lease_waiters w SET expires_at = clock_timestamp() + make_interval(secs => keep_ms / 1000.0)
   WHERE w.token = ANY(tokens);
  RETURN QUERY
  SELECT w.token,
         (SELECT count(*) FROM :"schema".leases l
           WHERE l.name = w.name AND l.token IS NOT NULL AND l.expires_at > clock_timestamp())
       + (SELECT count(*) FROM (SELECT FROM :"schema".lease_waiters a
                                 WHERE a.name = w.name AND a.place < w.place AND a.expires_at > clock_timestamp()
                                 LIMIT given.permits) AS waiting) < given.permits AND clock_timestamp() >= grants_from,
         (SELECT (extract(epoch FROM greatest(min(l.expires_at), CASE WHEN clock_timestamp() < grants_from THEN grants_from END)
                          - clock_timestamp()) * 1000)::double precision
            FROM :"schema".leases l
           WHERE l.name = w.name AND l.token IS NOT NULL AND l.expires_at > clock_timestamp())
    FROM unnest(tokens, permits) AS given(token, permits) JOIN :"schema".lease_waiters w ON w.token = given.token;
END
$$;
