-- Adds waiters to the queue, in their order.
CREATE FUNCTION :"schema".lease_wait(names text[], tokens uuid[], holders text[], keep_ms integer)
RETURNS TABLE (waiting_token uuid, waiting_place bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  INSERT INTO :"schema".lease_waiters AS w (name, token, holder, expires_at)
  SELECT g.name, g.token, g.holder, clock_timestamp() + make_interval(secs => keep_ms / 1000.0)
    FROM unnest(names, tokens, holders) WITH ORDINALITY AS g(name, token, holder, number)
   ORDER BY g.number
      ON CONFLICT (token) DO UPDATE SET expires_at = excluded.expires_at
  RETURNING w.token, w.place
$$;
