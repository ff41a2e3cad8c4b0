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
  groups bigint := :"schema".outbox_group_lock(0);
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
           CASE WHEN (f.id # groups) BETWEEN 0 AND 63 THEN format('group %s of the outbox', f.id # groups) END,
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
