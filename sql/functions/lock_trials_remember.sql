-- Remembers a trial that found nothing wrong, and forgets those of other servers and the oldest beyond 1,000: a process on a machine with
-- a pooler of its own adds one.
CREATE FUNCTION :"schema".lock_trials_remember(
  my_route text, my_strategy text, was_pooled boolean, my_connections integer, my_version integer
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  here bigint := (SELECT i.system FROM :"schema".ensure_incarnation() i);
BEGIN
  INSERT INTO :"schema".lock_trials AS t (system, route, strategy, pooled, connections, version)
  VALUES (here, my_route, my_strategy, was_pooled, my_connections, my_version)
      ON CONFLICT (system, route, strategy, pooled)
      DO UPDATE SET connections = excluded.connections, version = excluded.version, tried_at = excluded.tried_at
              WHERE t.connections <= excluded.connections OR t.version < excluded.version;
  DELETE FROM :"schema".lock_trials t
   WHERE t.system <> here
      OR t.tried_at < (SELECT k.tried_at FROM :"schema".lock_trials k ORDER BY k.tried_at DESC OFFSET 1000 LIMIT 1);
END
$$;
