-- Writes a dispatcher down, or finds it. How long it wants events to stay is what the process that registered last says; a process that
-- will not run, because its server or its shards are others, has no say. begun names the dispatcher that it was, in microseconds since 1970: a process
-- that knew it already passes it, and finds no shards where it was removed meanwhile.
CREATE FUNCTION :"schema".outbox_register_dispatcher(
  my_name text, my_shards smallint, this_system text, this_database text, this_timeline bigint,
  shards_stated boolean, my_retain_ms bigint, known bigint,
  OUT shards smallint, OUT system text, OUT database text, OUT timeline bigint, OUT begun bigint, OUT was_split boolean
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM :"schema".outbox_home h WHERE h.system = this_system) THEN
    -- Without events there is nothing to choose about: a dump without them, or of an outbox that had none. What else names another
    -- server's transactions must go with its name. A tick of its ids would end every window here far in the future, and what is
    -- enqueued below would count as delivered.
    PERFORM :"schema".outbox_halt();
    IF NOT EXISTS (SELECT FROM :"schema".outbox_home h WHERE h.system = this_system)
       AND NOT EXISTS (SELECT FROM :"schema".outbox_events) THEN
      PERFORM :"schema".outbox_forget_xids(this_system);
    END IF;
  END IF;
  SELECT h.system INTO system FROM :"schema".outbox_home h;
  IF system IS DISTINCT FROM this_system THEN
    RETURN;
  END IF;
  IF known IS NULL THEN
    INSERT INTO :"schema".outbox_dispatchers (name, shards, system, database, timeline, retain_ms)
    VALUES (my_name, my_shards, this_system, this_database, this_timeline, my_retain_ms) ON CONFLICT DO NOTHING;
    IF FOUND THEN
      -- Of a dump that had the cursors and not the dispatchers. Parked events stay: they were not delivered.
      DELETE FROM :"schema".outbox_cursors o WHERE o.dispatcher = my_name;
    END IF;
  ELSIF NOT EXISTS (SELECT FROM :"schema".outbox_dispatchers o
                     WHERE o.name = my_name AND (extract(epoch FROM o.created_at) * 1000000)::bigint = known) THEN
    RETURN;
  END IF;
  -- A promotion begins a new timeline, and the cursors are as good as before.
  UPDATE :"schema".outbox_dispatchers o SET timeline = this_timeline
   WHERE o.name = my_name AND o.system = this_system AND o.database = this_database AND o.timeline < this_timeline;
  IF FOUND THEN
    INSERT INTO :"schema".outbox_audit (verb, dispatcher, reason)
    VALUES ('timeline ' || this_timeline, my_name, 'the server was promoted or restored: numbers of lost events are given out again');
  END IF;
  UPDATE :"schema".outbox_dispatchers o SET retain_ms = my_retain_ms
   WHERE o.name = my_name AND o.system = this_system AND o.database = this_database AND o.timeline = this_timeline
     AND (o.shards = my_shards OR NOT shards_stated OR (o.shards > my_shards AND o.split_from IS NOT NULL)) AND o.retain_ms IS DISTINCT FROM my_retain_ms;
  SELECT o.shards, o.system, o.database, o.timeline, (extract(epoch FROM o.created_at) * 1000000)::bigint, o.split_from IS NOT NULL
    INTO shards, system, database, timeline, begun, was_split
    FROM :"schema".outbox_dispatchers o WHERE o.name = my_name;
END
$$;
