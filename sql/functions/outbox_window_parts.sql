-- The transactions of a window with the groups that they have events in; nulls where they are more than a few. Steps from one to the
-- next on the index, so that it costs the same however many events each has. (One statement: 10 us a step. A statement a step: 24.)
-- Of the transactions that were open at the beginning of the window, only those with events count: a busy server always has some without, which
-- would make a window of one transaction look like one of many.
CREATE FUNCTION :"schema".outbox_window_parts(
  slots smallint[], groups smallint[], a pg_snapshot, z pg_snapshot, OUT part_groups smallint[], OUT part_xids xid8[]
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  few CONSTANT integer := 300;
BEGIN
  WITH RECURSIVE begun AS (
    SELECT g AS bucket_group, (pg_snapshot_xmax(a)::text::bigint - 1)::text::xid8 AS xid FROM unnest(groups) AS g
  ), steps AS (
    SELECT * FROM begun
    UNION ALL
    SELECT s.bucket_group, n.xid
      FROM steps s
      CROSS JOIN LATERAL (
        SELECT e.xid FROM :"schema".outbox_events e
         WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = s.bucket_group
           AND e.xid > s.xid AND e.xid < pg_snapshot_xmax(z)
         ORDER BY e.bucket_group, e.xid LIMIT 1) AS n
  )
  SELECT COALESCE(array_agg(p.bucket_group), '{}'), COALESCE(array_agg(p.xid), '{}') INTO part_groups, part_xids
    FROM (SELECT * FROM (SELECT * FROM steps OFFSET cardinality(groups)) AS found
          UNION ALL
          SELECT g, x FROM unnest(groups) AS g CROSS JOIN pg_snapshot_xip(a) AS x
           CROSS JOIN LATERAL (
             SELECT FROM :"schema".outbox_events e
              WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8])
                AND e.bucket_group = g AND e.xid = x LIMIT 1) AS written
           WHERE pg_visible_in_snapshot(x, z)
          LIMIT few + 1) AS p;
  IF cardinality(part_xids) > few THEN
    part_groups := NULL;
    part_xids := NULL;
  END IF;
END
$$;
