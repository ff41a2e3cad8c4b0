-- What is known of the shards of all dispatchers. Everything is text. What is behind is counted where it is little, otherwise estimated.
-- Only topics that the dispatcher wants count. Undelivered is what the cursor's `next` does not show, and, while a window is being read, the rest of that window.
CREATE FUNCTION :"schema".outbox_status()
RETURNS TABLE (dispatcher text, shard text, fence text, moved_ms text, parked text, lag_events text, lag_exact text, oldest_ms text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  d :"schema".outbox_dispatchers;
  c :"schema".outbox_cursors;
  next pg_snapshot;
  groups smallint[];
  slots smallint[];
  ended xid8[];
  part_groups smallint[];
  part_xids xid8[];
  part record;
  low bigint;
  high bigint;
  middle bigint;
  at record;
  total bigint;
  all_exact boolean;
  oldest timestamptz;
  patterns text[];
  -- Where a shard is smaller than a group.
  buckets int4range;
  -- The maximum number of transactions of a group that are checked for whether the cursor is in the middle of them.
  most_partial CONSTANT integer := 100;
BEGIN
  FOR d IN SELECT * FROM :"schema".outbox_dispatchers o ORDER BY o.name LOOP
    patterns := :"schema".outbox_topic_patterns(d.topics);
    FOR n IN 0 .. d.shards - 1 LOOP
      SELECT * INTO c FROM :"schema".outbox_cursors o WHERE o.dispatcher = d.name AND o.shard = n ORDER BY o.version DESC LIMIT 1;
      SELECT INTO total, all_exact, oldest, next 0, true, NULL, COALESCE(c.next, '1:1:');
      groups := ARRAY(SELECT generate_series(n * 64 / d.shards, greatest(n * 64 / d.shards, (n + 1) * 64 / d.shards - 1))::smallint);
      buckets := CASE WHEN d.shards > 64 THEN int4range(n * 1024 / d.shards, (n + 1) * 1024 / d.shards) END;
      -- As in outbox_read().
      ended := ARRAY(SELECT x FROM pg_snapshot_xip(next) AS x WHERE pg_visible_in_snapshot(x, pg_current_snapshot()) ORDER BY x);
      slots := ARRAY(SELECT s.slot FROM :"schema".outbox_segments s
                      WHERE s.sealed_xid IS NULL OR s.sealed_xid > least(pg_snapshot_xmax(next), ended[1])
                     UNION SELECT o.last_value FROM :"schema".outbox_slot o);
      FOR part IN SELECT r.* FROM unnest(groups) AS g
                   CROSS JOIN (SELECT pg_snapshot_xmax(next) AS low, NULL::xid8 AS high UNION ALL SELECT x, x FROM unnest(ended) AS x) AS w
                   CROSS JOIN LATERAL :"schema".outbox_estimate_wanted(slots, g, w.low, w.high, 0::bigint, patterns, buckets) AS r LOOP
        SELECT INTO total, all_exact, oldest total + part.events, all_exact AND part.exact, least(oldest, part.oldest);
      END LOOP;
      IF NOT c.done THEN
        ended := ARRAY(SELECT x FROM pg_snapshot_xip(c.prev) AS x WHERE pg_visible_in_snapshot(x, next) ORDER BY x);
        slots := ARRAY(SELECT s.slot FROM :"schema".outbox_segments s
                        WHERE s.sealed_xid IS NULL OR s.sealed_xid > least(pg_snapshot_xmax(c.prev), ended[1])
                       UNION SELECT o.last_value FROM :"schema".outbox_slot o);
        SELECT * INTO part_groups, part_xids FROM :"schema".outbox_window_parts(slots, groups, c.prev, next);
        IF part_groups IS NULL THEN
          -- Many small transactions: ids grow with them, nearly. So the place that the cursor has come to is found by halving.
          SELECT INTO part_groups, part_xids array_agg(g), array_agg(x) FROM unnest(groups) AS g CROSS JOIN unnest(ended) AS x;
          FOR i IN 1 .. cardinality(groups) LOOP
            low := pg_snapshot_xmax(c.prev)::text::bigint;
            high := pg_snapshot_xmax(next)::text::bigint;
            WHILE low < high LOOP
              middle := (low + high) / 2;
              SELECT e.id, e.xid INTO at FROM :"schema".outbox_events e
               WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = groups[i] AND e.xid >= middle::text::xid8 AND e.xid < high::text::xid8
               ORDER BY e.bucket_group, e.xid, e.id LIMIT 1;
              IF NOT FOUND OR at.id > c.after_id THEN
                high := middle;
              ELSE
                low := at.xid::text::bigint + 1;
              END IF;
            END LOOP;
            SELECT * INTO part FROM :"schema".outbox_estimate_wanted(slots, groups[i], low::text::xid8, pg_snapshot_xmax(next), c.after_id, patterns, buckets);
            SELECT INTO total, all_exact, oldest total + part.events, false, least(oldest, part.oldest);
            -- Transactions that began before that place and continue behind it: large ones, also in parallel.
            FOR step IN 1 .. most_partial LOOP
              SELECT e.id, e.xid INTO at FROM :"schema".outbox_events e
               WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = groups[i] AND e.xid >= pg_snapshot_xmax(c.prev) AND e.xid < low::text::xid8
               ORDER BY e.bucket_group DESC, e.xid DESC, e.id DESC LIMIT 1;
              EXIT WHEN NOT FOUND OR at.id <= c.after_id;
              low := at.xid::text::bigint;
              part_groups := part_groups || groups[i];
              part_xids := part_xids || at.xid;
            END LOOP;
          END LOOP;
        END IF;
        FOR part IN SELECT r.* FROM unnest(part_groups, part_xids) AS p(bucket_group, xid)
                     CROSS JOIN LATERAL :"schema".outbox_estimate_wanted(slots, p.bucket_group, p.xid, p.xid, c.after_id, patterns, buckets) AS r
                     WHERE pg_visible_in_snapshot(p.xid, next) LOOP
          SELECT INTO total, all_exact, oldest total + part.events, all_exact AND part.exact, least(oldest, part.oldest);
        END LOOP;
      END IF;
      SELECT INTO dispatcher, shard, fence, moved_ms, lag_events, lag_exact, oldest_ms
                  d.name, n, c.fence, (extract(epoch FROM c.moved_at) * 1000), total, all_exact, (extract(epoch FROM oldest) * 1000);
      -- Not those that are held: nothing is wrong with them. See outbox_held().
      SELECT count(*) INTO parked FROM :"schema".outbox_parked p
       WHERE p.dispatcher = d.name AND p.shard = n AND (p.state = 'parked' AND p.held_until > clock_timestamp()) IS NOT TRUE;
      RETURN NEXT;
    END LOOP;
  END LOOP;
END
$$;
