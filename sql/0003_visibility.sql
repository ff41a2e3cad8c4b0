-- compatible-from: 1
-- The names of recent locks, so that people read keys and not numbers. A cache: written in the background, bounded, and
-- UNLOGGED, since after a crash the processes write it anew.
CREATE UNLOGGED TABLE :"schema".lock_names (
  id bigint PRIMARY KEY,
  key text NOT NULL,
  seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX lock_names_seen_at ON :"schema".lock_names (seen_at);

-- Which keys are locked, which only observed. Followed by every process that was told to.
CREATE TABLE :"schema".rollout (
  prefix text PRIMARY KEY,
  mode text NOT NULL CHECK (mode IN ('off', 'observe', 'on', 'percent')),
  percent integer CHECK (percent BETWEEN 0 AND 100),
  reason text NOT NULL DEFAULT '',
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CHECK ((mode = 'percent') = (percent IS NOT NULL))
);

-- A row a key, for places without advisory locks: locked FOR UPDATE, and deleted again when nobody holds it.
CREATE TABLE :"schema".lock_rows (
  id bigint PRIMARY KEY
);

-- Writes names of locks down: a list of pairs of id and key. The rows come in ascending order of id, so that two processes never wait for
-- each other in a circle. A number that is not the key's is left out: one role must not rename another's locks. A name that was seen a
-- moment ago is not written again.
CREATE FUNCTION :"schema".lock_names_record(names json) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  INSERT INTO :"schema".lock_names AS known (id, key)
  SELECT given.id, given.key
    FROM (SELECT (name ->> 0)::bigint AS id, name ->> 1 AS key FROM json_array_elements(names) AS n(name)) AS given
   WHERE given.id = :"schema".lock_id('lock', given.key)
   ORDER BY given.id
      ON CONFLICT (id) DO UPDATE SET key = excluded.key, seen_at = excluded.seen_at
   WHERE known.seen_at < excluded.seen_at - interval '4 minutes'
$$;

-- Forgets the names beyond the newest `keep`, `most` of them at a time. Rows that another session is writing are left alone: waiting for
-- them in another order than theirs could be a deadlock.
CREATE FUNCTION :"schema".lock_names_trim(keep integer, most integer) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  DELETE FROM :"schema".lock_names WHERE id IN (
    SELECT n.id FROM :"schema".lock_names n
     WHERE n.seen_at < (SELECT s.seen_at FROM :"schema".lock_names s ORDER BY s.seen_at DESC OFFSET greatest(keep, 1) - 1 LIMIT 1)
     ORDER BY n.seen_at LIMIT most FOR UPDATE SKIP LOCKED)
$$;

-- The names of these locks, as far as they are known.
CREATE FUNCTION :"schema".lock_names_of(ids bigint[]) RETURNS TABLE (id bigint, key text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  RETURN QUERY SELECT n.id, n.key FROM :"schema".lock_names n WHERE n.id = ANY(ids);
END
$$;

CREATE FUNCTION :"schema".rollout_rules() RETURNS SETOF :"schema".rollout
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT * FROM :"schema".rollout r ORDER BY r.prefix $$;

CREATE FUNCTION :"schema".rollout_set(my_prefix text, my_mode text, my_percent integer, my_reason text) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  INSERT INTO :"schema".rollout (prefix, mode, percent, reason) VALUES (my_prefix, my_mode, my_percent, my_reason)
      ON CONFLICT (prefix) DO UPDATE
     SET mode = excluded.mode, percent = excluded.percent, reason = excluded.reason, changed_at = clock_timestamp()
$$;

-- One row where there was a rule of exactly this prefix.
CREATE FUNCTION :"schema".rollout_unset(my_prefix text) RETURNS SETOF text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ DELETE FROM :"schema".rollout r WHERE r.prefix = my_prefix RETURNING r.prefix $$;

-- Locks the row of a key if it is there and free. Null otherwise.
CREATE FUNCTION :"schema".lock_row_try(my_id bigint, shared boolean) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  IF shared THEN
    RETURN (SELECT r.id FROM :"schema".lock_rows r WHERE r.id = my_id FOR SHARE SKIP LOCKED);
  END IF;
  RETURN (SELECT r.id FROM :"schema".lock_rows r WHERE r.id = my_id FOR UPDATE SKIP LOCKED);
END
$$;

-- Makes the row of a key or locks the one that is there, waits for the session that holds it, and writes nothing to it.
CREATE FUNCTION :"schema".lock_row_wait(my_id bigint, shared boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  IF shared THEN
    INSERT INTO :"schema".lock_rows (id) VALUES (my_id) ON CONFLICT (id) DO NOTHING;
    PERFORM FROM :"schema".lock_rows r WHERE r.id = my_id FOR SHARE;
  ELSE
    INSERT INTO :"schema".lock_rows (id) VALUES (my_id) ON CONFLICT (id) DO UPDATE SET id = excluded.id WHERE false;
  END IF;
END
$$;

-- How many of these keys have a row.
CREATE FUNCTION :"schema".lock_rows_existing(ids bigint[]) RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT count(*) FROM :"schema".lock_rows r WHERE r.id = ANY(ids) $$;

-- Sessions that hold or wait for one of Lockstep's numbers although their role has no right on the schema: they are not Lockstep's. Every
-- role that can connect can take any advisory lock. `what` says whose number it is. A number whose key is not known is listed while a
-- session of Lockstep's uses it.
CREATE FUNCTION :"schema".foreign_lock_holders(most integer)
RETURNS TABLE (pid integer, role text, application text, id bigint, held boolean, what text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
  space oid := (SELECT n.oid FROM pg_namespace n WHERE n.nspname = :'schema');
  buckets bigint := :"schema".outbox_bucket_lock(0);
BEGIN
  RETURN QUERY
  WITH listed AS MATERIALIZED (
    SELECT l.pid, (l.classid::bigint << 32) | l.objid::bigint AS id, l.granted, a.usename::text AS role, a.application_name,
           COALESCE(has_schema_privilege(a.usesysid, space, 'USAGE'), false) AS ours
      FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.database = here
  ), internal AS MATERIALIZED (
    SELECT * FROM (VALUES (:"schema".lock_id('incarnation', 'Incarnation:global'), 'the lock of the server epoch'),
                          (:"schema".lock_id('migrate', 'Migrate:global'), 'the lock of migrations'),
                          (:"schema".lock_id('leases', 'CleanUp:all'), 'the lock of cleaning leases up')) AS given(id, name)
    UNION ALL
    SELECT :"schema".outbox_shard_lock(d.name, n.shard::smallint), format('shard %s of the dispatcher %s', n.shard, d.name)
      FROM :"schema".outbox_dispatchers d CROSS JOIN LATERAL generate_series(0, d.shards - 1) AS n(shard)
  )
  SELECT f.pid, f.role, COALESCE(f.application_name, ''), f.id, f.granted, k.name
    FROM listed f CROSS JOIN LATERAL (SELECT COALESCE(
           (SELECT 'the lock on ' || n.key FROM :"schema".lock_names n WHERE n.id = f.id),
           (SELECT i.name FROM internal i WHERE i.id = f.id LIMIT 1),
           CASE WHEN (f.id # buckets) BETWEEN 0 AND 63 THEN format('bucket %s of the outbox', f.id # buckets) END,
           -- A stream's number is the first half of its uuid.
           (SELECT format('the stream %s/%s of the outbox', e.topic, e.key) FROM :"schema".outbox_events e
             WHERE e.stream BETWEEN (lpad(to_hex(f.id), 16, '0') || '0000000000000000')::uuid
                                AND (lpad(to_hex(f.id), 16, '0') || 'ffffffffffffffff')::uuid LIMIT 1),
           CASE WHEN EXISTS (SELECT FROM listed o WHERE o.id = f.id AND o.ours) THEN format('the lock %s, which Lockstep uses', f.id) END
         ) AS name) AS k
   WHERE NOT f.ours AND k.name IS NOT NULL
   ORDER BY f.granted DESC, f.pid, f.id LIMIT most;
END
$$;
