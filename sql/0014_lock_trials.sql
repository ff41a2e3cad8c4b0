-- compatible-from: 1
-- Where a trial has shown that locks exclude. A process that finds its server, its route and its strategy here does not try again. The
-- route is what the driver was told to connect to: a pooler or a balancer on the way has no other name. The system identifier is the
-- server's: after a restore into another cluster nothing here counts.
CREATE TABLE :"schema".lock_trials (
  system bigint NOT NULL,
  route text NOT NULL,
  strategy text NOT NULL,
  -- Whether the connections went through a pooler that could be seen.
  pooled boolean NOT NULL,
  -- 2: the second was refused the key that the first one held. 1: there was no second, and the list of locks showed the key.
  connections smallint NOT NULL,
  -- Of the trial: a later release may try more.
  version integer NOT NULL,
  tried_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (system, route, strategy, pooled)
);

-- What is remembered of trials, such as `direct 2,pooled 1`.
CREATE FUNCTION :"schema".lock_trials_known(my_system bigint, my_route text, my_strategy text, least_version integer) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT string_agg(CASE WHEN t.pooled THEN 'pooled ' ELSE 'direct ' END || t.connections, ',') FROM :"schema".lock_trials t
   WHERE t.system = my_system AND t.route = my_route AND t.strategy = my_strategy AND t.version >= least_version
$$;

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

-- Forgets every trial by a route: there, locks do not exclude any more.
CREATE FUNCTION :"schema".lock_trials_forget(my_route text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ DELETE FROM :"schema".lock_trials t WHERE t.route = my_route $$;
