-- Records the caller's snapshot. The snapshot omits the caller itself, which is still in progress for all other sessions. If it were not
-- added, its events would count as delivered.
CREATE FUNCTION :"schema".outbox_tick(at_id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET jit = off
AS $$
DECLARE
  now pg_snapshot := pg_current_snapshot();
  -- After the snapshot.
  written pg_lsn := pg_current_wal_insert_lsn();
  me xid8 := pg_current_xact_id();
  running xid8[] := ARRAY(SELECT x FROM (SELECT pg_snapshot_xip(now) AS x
                                          UNION SELECT me WHERE me < pg_snapshot_xmax(now)) AS r ORDER BY x);
BEGIN
  INSERT INTO :"schema".outbox_ticks VALUES (
    pg_snapshot_xmax(now), cardinality(running), at_id,
    format('%s:%s:%s', COALESCE(running[1], pg_snapshot_xmax(now)), pg_snapshot_xmax(now), array_to_string(running, ','))::pg_snapshot,
    written);
END
$$;
