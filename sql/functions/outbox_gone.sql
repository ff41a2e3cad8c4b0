-- Which sessions are not there any more that owners of shards have named in their leases: they hold a shared advisory lock on that number, from
-- before they take a shard. The end of a session is not the death of a process, so only owners name one whose sink refuses what comes late.
-- Of suspects, which were not there at an earlier look either, the leases are ended: then the shards are free, and the process does not count
-- any more. docs/decisions/0055-dead-owners.md has the argument.
CREATE FUNCTION :"schema".outbox_gone(
  my_dispatcher text, shard_count integer, suspects bigint[], my_holder text, OUT absent bigint[], OUT ended integer
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
  named bigint[];
BEGIN
  ended := 0;
  -- First the leases, then the locks: a lease names a session only once that has its lock.
  named := ARRAY(SELECT DISTINCT (l.metadata->>'session')::bigint
                   FROM generate_series(0, shard_count - 1) AS n(shard)
                   JOIN :"schema".leases l ON l.name = 'Outbox:' || my_dispatcher || ':shard:' || n.shard AND l.slot = 0
                  WHERE l.token IS NOT NULL AND l.expires_at > clock_timestamp() AND l.metadata ? 'session');
  absent := ARRAY(SELECT s FROM unnest(named) AS s
                  EXCEPT SELECT (k.classid::bigint << 32) | k.objid::bigint FROM pg_locks k
                          WHERE k.locktype = 'advisory' AND k.database = here AND k.objsubid = 1 AND k.granted);
  IF NOT (absent && suspects) THEN
    RETURN;
  END IF;
  PERFORM set_config('synchronous_commit', 'on', true);
  WITH gone AS MATERIALIZED (
    SELECT l.* FROM :"schema".leases l
     WHERE starts_with(l.name, 'Outbox:' || my_dispatcher || ':') AND (l.name LIKE '%:shard:%' OR l.name LIKE '%:member:%')
       AND l.token IS NOT NULL AND l.expires_at > clock_timestamp()
       AND (l.metadata->>'session')::bigint = ANY(absent) AND (l.metadata->>'session')::bigint = ANY(suspects)
     ORDER BY l.name, l.slot FOR UPDATE
  ), freed AS (
    UPDATE :"schema".leases l SET token = NULL, expires_at = clock_timestamp()
      FROM gone g WHERE l.name = g.name AND l.slot = g.slot
    RETURNING g.*
  )
  INSERT INTO :"schema".lease_history (name, slot, fence, holder, metadata, acquired_at, ended_at, ending, ended_by, reason)
  SELECT f.name, f.slot, f.fence, f.holder, f.metadata, f.acquired_at, clock_timestamp(), 'forced', my_holder, 'the session of its holder has ended'
    FROM freed f;
  GET DIAGNOSTICS ended = ROW_COUNT;
END
$$;
