-- After a dump was restored, or on a copy: the ids of transactions in it are another server's. What was not delivered by then, as far as
-- the cursors in the dump say, is parked, stream by stream ('undelivered'), or held for delivered ('none'); or everything is
-- delivered again ('all'). Then the cursors start from here on this server.
CREATE FUNCTION :"schema".outbox_rebase(
  my_dispatcher text, choice text, this_system text, this_database text, this_timeline bigint, my_reason text
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  d :"schema".outbox_dispatchers;
  c :"schema".outbox_cursors;
  put_aside bigint := 0;
  more bigint;
BEGIN
  IF choice NOT IN ('undelivered', 'all', 'none') THEN
    RAISE EXCEPTION 'choose undelivered, all or none' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM set_config('synchronous_commit', 'on', true);
  PERFORM :"schema".outbox_halt();
  SELECT * INTO d FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  FOR n IN 0 .. d.shards - 1 LOOP
    SELECT * INTO c FROM :"schema".outbox_cursors o WHERE o.dispatcher = my_dispatcher AND o.shard = n ORDER BY o.version DESC LIMIT 1;
    IF NOT FOUND THEN
      c.version := 0;
      c.fence := 0;
      c.next := '1:1:';
      c.done := true;
      c.seen_id := 0;
    END IF;
    IF choice <> 'none' THEN
      INSERT INTO :"schema".outbox_parked_events
      SELECT my_dispatcher, e.stream, e.seq, e.id, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers,
             CASE WHEN e.erased THEN 'erased' END, e.not_before
        FROM :"schema".outbox_events e
       WHERE :"schema".outbox_shard(e.bucket, d.shards) = n
         AND (d.topics IS NULL OR e.topic LIKE ANY(:"schema".outbox_topic_patterns(d.topics)))
         -- What was enqueued here, after the restore, has a larger id than anything that the old cursors know of.
         AND (choice = 'all' OR e.id > c.seen_id OR NOT CASE WHEN c.done THEN pg_visible_in_snapshot(e.xid, c.next)
                ELSE pg_visible_in_snapshot(e.xid, c.prev) OR (pg_visible_in_snapshot(e.xid, c.next) AND e.id <= c.after_id) END)
          ON CONFLICT DO NOTHING;
      GET DIAGNOSTICS more = ROW_COUNT;
      put_aside := put_aside + more;
    END IF;
    INSERT INTO :"schema".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
    SELECT my_dispatcher, n, c.version + 1, c.fence, pg_current_snapshot(), pg_current_snapshot(), 0, true, o.last_value
      FROM :"schema".outbox_ids o;
  END LOOP;
  -- Events that are parked now can have smaller numbers than those that were sent.
  UPDATE :"schema".outbox_parked o SET sent_seq = 0 WHERE o.dispatcher = my_dispatcher AND o.sent_seq > 0;
  INSERT INTO :"schema".outbox_parked (dispatcher, stream, shard, topic, key, state, reason)
  SELECT DISTINCT my_dispatcher, e.stream, :"schema".outbox_shard(:"schema".outbox_bucket(e.stream), d.shards), e.topic, e.key, 'parked', 'rebase'
    FROM :"schema".outbox_parked_events e WHERE e.dispatcher = my_dispatcher
      ON CONFLICT DO NOTHING;
  PERFORM :"schema".outbox_hold(my_dispatcher, ARRAY(SELECT DISTINCT e.stream FROM :"schema".outbox_parked_events e
                                                      WHERE e.dispatcher = my_dispatcher AND e.not_before IS NOT NULL));
  UPDATE :"schema".outbox_dispatchers o SET system = this_system, database = this_database, timeline = this_timeline
   WHERE o.name = my_dispatcher;
  INSERT INTO :"schema".outbox_audit (verb, dispatcher, reason) VALUES ('rebase ' || choice, my_dispatcher, my_reason);
  RETURN put_aside;
END
$$;
