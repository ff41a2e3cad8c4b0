-- Whether there is anything for a dispatcher to do, in any of its shards, whichever process owns them: an event that its cursor has not passed, or a
-- stream that is due for another try. due_ms: until the next stream is due; null where none waits for a time. It reads no payload.
CREATE FUNCTION :"schema".outbox_look_ahead(my_dispatcher text, shard_count integer, OUT stirred boolean, OUT due_ms bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  c :"schema".outbox_cursors;
  groups smallint[];
  -- Where a shard is smaller than a group.
  buckets int4range;
  patterns text[] := (SELECT :"schema".outbox_topic_patterns(d.topics) FROM :"schema".outbox_dispatchers d WHERE d.name = my_dispatcher);
  last_id bigint := (SELECT s.last_value FROM :"schema".outbox_ids s);
  much boolean;
  due timestamptz;
BEGIN
  stirred := true;
  -- It was split: who wakes learns it.
  IF EXISTS (SELECT FROM :"schema".outbox_dispatchers d WHERE d.name = my_dispatcher AND d.shards <> shard_count) THEN
    RETURN;
  END IF;
  -- By shard: that is how the index finds the first one.
  due := (SELECT min(s.due) FROM generate_series(0, shard_count - 1) AS n
            CROSS JOIN LATERAL (SELECT min(p.next_attempt_at) AS due FROM :"schema".outbox_parked p
                                 WHERE p.dispatcher = my_dispatcher AND p.shard = n AND p.state = 'parked') AS s);
  due_ms := ceil(extract(epoch FROM due - clock_timestamp()) * 1000)::bigint;
  IF due_ms <= 0 THEN
    RETURN;
  END IF;
  FOR n IN 0 .. shard_count - 1 LOOP
    SELECT * INTO c FROM :"schema".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = n ORDER BY o.version DESC LIMIT 1;
    -- Of other topics only so many as make a cursor stale in outbox_read(): few are read until it is.
    much := patterns IS NULL OR last_id - c.seen_id >= 50 * shard_count;
    groups := ARRAY(SELECT generate_series(n * 64 / shard_count, greatest(n * 64 / shard_count, (n + 1) * 64 / shard_count - 1))::smallint);
    buckets := CASE WHEN shard_count > 64 THEN int4range(n * 1024 / shard_count, (n + 1) * 1024 / shard_count) END;
    -- As in outbox_read(): what began later, and what ran then and has ended.
    IF c.done IS NOT TRUE
       OR EXISTS (SELECT FROM :"schema".outbox_events e WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(c.next)
                   AND (buckets IS NULL OR e.bucket::integer <@ buckets) AND (much OR e.topic LIKE ANY(patterns)))
       OR EXISTS (SELECT FROM pg_snapshot_xip(c.next) AS x CROSS JOIN LATERAL (
                    SELECT FROM :"schema".outbox_events e WHERE e.bucket_group = ANY(groups) AND e.xid = x
                      AND (buckets IS NULL OR e.bucket::integer <@ buckets) AND (much OR e.topic LIKE ANY(patterns)) LIMIT 1) AS t) THEN
      RETURN;
    END IF;
  END LOOP;
  stirred := false;
END
$$;
