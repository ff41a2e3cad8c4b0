-- compatible-from: 1
-- What keeps the outbox going: registration, segments, and what operators do.

-- What operators did, who they said they were, from where they were connected, and why. What a dispatcher gave up by itself has no by_name.
CREATE TABLE :"schema".outbox_audit (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  by_role text NOT NULL DEFAULT session_user,
  -- As the caller said, for one transaction: several people share one role. Undefined and reset are the empty text.
  by_name text DEFAULT nullif(current_setting('lockstep.by', true), ''),
  by_address inet DEFAULT inet_client_addr(),
  verb text NOT NULL,
  dispatcher text,
  topic text,
  key text,
  seq bigint,
  reason text
);

-- Writes a dispatcher down, or finds it. How long it wants events to stay is what the process that registered last says; a process that
-- will not run, because its server or its shards are others, has no say.
CREATE FUNCTION :"schema".outbox_register(
  my_name text, my_shards smallint, this_system text, this_database text, this_timeline bigint,
  shards_stated boolean, my_retain_ms bigint,
  OUT shards smallint, OUT system text, OUT database text, OUT timeline bigint
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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
  INSERT INTO :"schema".outbox_dispatchers (name, shards, system, database, timeline, retain_ms)
  VALUES (my_name, my_shards, this_system, this_database, this_timeline, my_retain_ms) ON CONFLICT DO NOTHING;
  IF FOUND THEN
    -- Of a dump that had the cursors and not the dispatchers. What is put aside stays: it was not delivered.
    DELETE FROM :"schema".outbox_cursors o WHERE o.dispatcher = my_name;
  END IF;
  -- A promotion begins a new timeline, and the cursors are as good as before.
  UPDATE :"schema".outbox_dispatchers o SET timeline = this_timeline
   WHERE o.name = my_name AND o.system = this_system AND o.database = this_database AND o.timeline < this_timeline;
  UPDATE :"schema".outbox_dispatchers o SET retain_ms = my_retain_ms
   WHERE o.name = my_name AND o.system = this_system AND o.database = this_database AND o.timeline = this_timeline
     AND (o.shards = my_shards OR NOT shards_stated) AND o.retain_ms IS DISTINCT FROM my_retain_ms;
  SELECT o.shards, o.system, o.database, o.timeline INTO shards, system, database, timeline
    FROM :"schema".outbox_dispatchers o WHERE o.name = my_name;
END
$$;

-- How long delivered events stay: as long as that registered dispatcher wants which wants it longest. Null: for ever, because one of them
-- says so, or because there is none.
CREATE FUNCTION :"schema".outbox_retention() RETURNS interval
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  RETURN (SELECT CASE WHEN count(*) = count(d.retain_ms) THEN make_interval(secs => max(d.retain_ms) / 1000.0) END
            FROM :"schema".outbox_dispatchers d);
END
$$;

-- Makes the next slot known, if the current segment is old enough and the next slot is free. It is written to only after this is
-- committed: readers look into all slots that are known. Here and below a null age is that of the registered dispatchers. A
-- segment has a sixth of it: there are slots for two more.
CREATE FUNCTION :"schema".outbox_prepare_segment(min_age interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  current_slot smallint := (SELECT last_value FROM :"schema".outbox_slot);
BEGIN
  INSERT INTO :"schema".outbox_segments (slot, number, opened_at)
  SELECT (s.slot + 1) % 8, s.number + 1, clock_timestamp()
    FROM :"schema".outbox_segments s
   WHERE s.slot = current_slot AND s.opened_at <= clock_timestamp() - COALESCE(min_age, :"schema".outbox_retention() / 6)
     AND EXISTS (SELECT FROM :"schema".outbox_events e WHERE e.slot = current_slot)
      ON CONFLICT DO NOTHING;
  RETURN FOUND;
END
$$;

-- From here on the slot that was made known is written to. This does not wait for a commit, and is not undone by a rollback.
CREATE FUNCTION :"schema".outbox_rotate() RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  here :"schema".outbox_segments;
  there :"schema".outbox_segments;
BEGIN
  IF NOT pg_try_advisory_xact_lock(:"schema".lock_id('outbox-retain', 'Outbox:rotate')) THEN
    RETURN false;
  END IF;
  SELECT * INTO here FROM :"schema".outbox_segments s WHERE s.slot = (SELECT last_value FROM :"schema".outbox_slot);
  SELECT * INTO there FROM :"schema".outbox_segments s WHERE s.number = here.number + 1;
  IF there.slot IS NULL THEN
    RETURN false;
  END IF;
  PERFORM setval(format('%I.outbox_slot', :'schema')::regclass, there.slot);
  UPDATE :"schema".outbox_segments s SET opened_at = clock_timestamp() WHERE s.slot = there.slot;
  RETURN true;
END
$$;

-- Notes from which transaction on nobody writes to a slot that was left: whoever read the old slot had its transaction id before that,
-- and so before this one got its own.
CREATE FUNCTION :"schema".outbox_seal() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  current_number bigint := (SELECT s.number FROM :"schema".outbox_segments s WHERE s.slot = (SELECT last_value FROM :"schema".outbox_slot));
  sealed integer;
BEGIN
  UPDATE :"schema".outbox_segments s SET left_at = clock_timestamp(), sealed_xid = pg_current_xact_id()
   WHERE s.number < current_number AND s.sealed_xid IS NULL;
  GET DIAGNOSTICS sealed = ROW_COUNT;
  RETURN sealed;
END
$$;

-- Which transactions every dispatcher has passed, in all its shards. Null: nobody dispatches, or nothing can be said: one has yet to
-- read, or the cursors are another server's.
CREATE FUNCTION :"schema".outbox_passed() RETURNS xid8
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  here text := (SELECT s.system_identifier::text FROM pg_control_system() AS s);
  passed xid8;
BEGIN
  IF NOT EXISTS (SELECT FROM :"schema".outbox_home h WHERE h.system = here)
     OR EXISTS (SELECT FROM :"schema".outbox_dispatchers d WHERE d.system <> here) THEN
    RETURN NULL;
  END IF;
  -- PostgreSQL 14 has no min() of these.
  SELECT (array_agg(p.xid ORDER BY p.xid))[1] INTO passed
    FROM :"schema".outbox_dispatchers d
    CROSS JOIN LATERAL generate_series(0, d.shards - 1) AS n(shard)
    LEFT JOIN LATERAL (SELECT * FROM :"schema".outbox_cursors o
                        WHERE o.dispatcher = d.name AND o.shard = n.shard ORDER BY o.version DESC LIMIT 1) AS c ON true
    CROSS JOIN LATERAL (SELECT CASE WHEN c.done THEN pg_snapshot_xmin(c.next) ELSE pg_snapshot_xmin(c.prev) END AS xid) AS p
   HAVING count(*) = count(c.version);
  RETURN passed;
END
$$;

-- Since when the last numbers of a segment's streams are in outbox_quiet.
ALTER TABLE :"schema".outbox_segments ADD COLUMN kept_at timestamptz;

-- Writes down the last numbers of streams that have nothing newer than a segment which is to go, and since when they are there. Not in
-- the step that empties its slot: pg_dump has its snapshot a while before it has locked the tables, and a TRUNCATE is seen by older
-- snapshots, too. Such a dump would have neither the events nor the numbers, and what it is restored to would give them out again.
--
-- One call is a step of a tenth of a second, less under a short statement_timeout: `more` says that another one is needed. A segment of
-- a sealed slot does not change any more, so that a step goes on where the last one has stopped, from stream to stream on the index: it costs
-- the same however many events each has. Segments are done in their order, one after the other: a stream's last number is that of its
-- last segment, and must be the last to go.
CREATE FUNCTION :"schema".outbox_keep(min_age interval, OUT readied integer, OUT more boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  streams_at_once CONSTANT integer := 200;
  age interval := COALESCE(min_age, :"schema".outbox_retention());
  passed xid8 := :"schema".outbox_passed();
  timeout interval := current_setting('statement_timeout')::interval;
  until timestamptz := clock_timestamp() + CASE WHEN timeout > '0' THEN least(timeout / 4, interval '0.1 s') ELSE interval '0.1 s' END;
  s :"schema".outbox_segments;
  found_streams integer;
  at uuid;
  top bigint;
BEGIN
  readied := 0;
  more := false;
  IF passed IS NULL OR age IS NULL OR NOT pg_try_advisory_xact_lock(:"schema".lock_id('outbox-retain', 'Outbox:rotate')) THEN
    RETURN;
  END IF;
  FOR s IN SELECT * FROM :"schema".outbox_segments g ORDER BY g.number LOOP
    CONTINUE WHEN s.kept_at IS NOT NULL;
    EXIT WHEN NOT COALESCE(s.sealed_xid <= passed AND s.left_at <= clock_timestamp() - (age - least(age, interval '1 minute')), false);
    LOOP
      EXECUTE format($walk$
        WITH RECURSIVE walk AS (
          (SELECT e.stream, e.topic, e.key, e.seq, e.id FROM %1$I.outbox_events_%2$s e
            WHERE e.stream < $1 ORDER BY e.stream DESC, e.seq DESC LIMIT 1)
          UNION ALL
          SELECT n.* FROM walk w CROSS JOIN LATERAL (
            SELECT e.stream, e.topic, e.key, e.seq, e.id FROM %1$I.outbox_events_%2$s e
             WHERE e.stream < w.stream ORDER BY e.stream DESC, e.seq DESC LIMIT 1) AS n
        ), streams AS MATERIALIZED (SELECT * FROM walk LIMIT $2),
        kept AS (
          INSERT INTO %1$I.outbox_quiet AS q (stream, topic, key, seq)
          SELECT w.stream, w.topic, w.key, w.seq FROM streams w
           -- By its index for each: as NOT EXISTS it may be joined with all events that there are.
           WHERE (SELECT true FROM %1$I.outbox_events later
                   WHERE later.stream = w.stream AND later.slot <> %2$s AND later.seq > w.seq LIMIT 1) IS NULL
              ON CONFLICT (stream) DO UPDATE SET seq = greatest(q.seq, EXCLUDED.seq)
        )
        SELECT count(*), (array_agg(w.stream ORDER BY w.stream))[1], max(w.id) FROM streams w
      $walk$, :'schema', s.slot) INTO found_streams, at, top USING COALESCE(s.kept_stream, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), streams_at_once;
      s.kept_stream := COALESCE(at, s.kept_stream);
      s.last_id := greatest(s.last_id, top);
      EXIT WHEN found_streams < streams_at_once;
      more := clock_timestamp() >= until;
      EXIT WHEN more;
    END LOOP;
    -- From the last moment on: it may have taken long.
    UPDATE :"schema".outbox_segments g
       SET kept_stream = s.kept_stream, last_id = s.last_id, kept_at = CASE WHEN NOT more THEN clock_timestamp() END
     WHERE g.slot = s.slot;
    EXIT WHEN more;
    readied := readied + 1;
    more := clock_timestamp() >= until;
    EXIT WHEN more;
  END LOOP;
END
$$;

-- Empties slots that every dispatcher has passed and the time has left, a minute after their last numbers were kept, or what is left
-- of the time where that is less. Waits for nobody for long: writers would queue up behind it. Where there is no dispatcher, nothing
-- has been delivered. In the order of segments, and none before an older one: what is left of a stream must be its end.
CREATE FUNCTION :"schema".outbox_drop(min_age interval) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  s :"schema".outbox_segments;
  age interval := COALESCE(min_age, :"schema".outbox_retention());
  passed xid8 := :"schema".outbox_passed();
  dropped integer := 0;
BEGIN
  -- One at a time: a second one, waiting for a slot's lock, would empty what has been written there since the first.
  IF passed IS NULL OR NOT pg_try_advisory_xact_lock(:"schema".lock_id('outbox-retain', 'Outbox:rotate')) THEN
    RETURN 0;
  END IF;
  PERFORM set_config('lock_timeout', '300ms', true);
  BEGIN
    -- A tick stands for a thousand events. What is left over goes with the next round.
    DELETE FROM :"schema".outbox_ticks t
     WHERE t.ctid = ANY(ARRAY(SELECT o.ctid FROM :"schema".outbox_ticks o WHERE o.newest < passed LIMIT 10000));
  EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
  END;
  FOR s IN SELECT * FROM :"schema".outbox_segments g ORDER BY g.number LOOP
    EXIT WHEN NOT COALESCE(s.sealed_xid <= passed AND s.left_at <= clock_timestamp() - age
                           AND s.kept_at <= clock_timestamp() - least(age, interval '1 minute'), false);
    BEGIN
      EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', format('%I.outbox_events_' || s.slot, :'schema')::regclass);
      -- A dispatcher that registers now waits until this is over; one that has registered counts.
      LOCK TABLE :"schema".outbox_dispatchers IN SHARE MODE;
    EXCEPTION WHEN lock_not_available THEN
      EXIT;
    END;
    -- Somebody new may have begun to read it meanwhile, or wants it for longer.
    passed := :"schema".outbox_passed();
    age := COALESCE(min_age, :"schema".outbox_retention());
    EXIT WHEN NOT COALESCE(s.sealed_xid <= passed AND s.left_at <= clock_timestamp() - age, false);
    -- For a replay of these events: see outbox_emptied().
    UPDATE :"schema".outbox_home h SET emptied_id = s.last_id WHERE h.emptied_id < s.last_id;
    EXECUTE format('TRUNCATE %s', format('%I.outbox_events_' || s.slot, :'schema')::regclass);
    DELETE FROM :"schema".outbox_segments g WHERE g.slot = s.slot;
    dropped := dropped + 1;
  END LOOP;
  RETURN dropped;
END
$$;

-- For a replay, in the transaction in which it will read, before that: what retention has removed by now it will not read. Up to which
-- id that is; and, of one stream, whether the event is gone that it would have to send next.
CREATE FUNCTION :"schema".outbox_emptied(my_topic text, my_key text, next_seq bigint, OUT emptied_id bigint, OUT gone boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  mine uuid := :"schema".outbox_stream(my_topic, my_key);
  last_seq bigint;
BEGIN
  -- Waits for a drop that is going on, and keeps the next one away until the read is over.
  LOCK TABLE :"schema".outbox_events IN ACCESS SHARE MODE;
  SELECT h.emptied_id INTO emptied_id FROM :"schema".outbox_home h;
  IF mine IS NOT NULL THEN
    -- First the last number: an event up to that which is not found afterwards is gone.
    last_seq := (:"schema".outbox_last(ARRAY[mine]))[1];
    gone := next_seq <= last_seq
            AND NOT EXISTS (SELECT FROM :"schema".outbox_events e WHERE e.stream = mine AND e.seq = next_seq);
  END IF;
END
$$;

-- An operator's verbs. Each is written down with who and why. my_seq and my_id: the event at the head that the operator has seen, for skip.
-- On a server that is behind, another event can have its number.
CREATE FUNCTION :"schema".outbox_operate(
  verb text, my_dispatcher text, my_topic text, my_key text, my_seq bigint, my_reason text, my_id uuid DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  mine uuid := :"schema".outbox_stream(my_topic, my_key);
  d :"schema".outbox_dispatchers;
  p :"schema".outbox_parked;
  head bigint;
  head_id uuid;
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  -- Not while it is removed: what is paused then would be left behind.
  SELECT * INTO d FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN 'no dispatcher';
  END IF;
  IF verb = 'pause' THEN
    INSERT INTO :"schema".outbox_parked AS o (dispatcher, stream, shard, topic, key, state, reason)
    VALUES (my_dispatcher, mine, :"schema".outbox_bucket(mine) * d.shards / 64, my_topic, my_key, 'paused', my_reason)
        ON CONFLICT (dispatcher, stream) DO UPDATE SET state = 'paused', reason = EXCLUDED.reason;
  ELSE
    SELECT * INTO p FROM :"schema".outbox_parked o WHERE o.dispatcher = my_dispatcher AND o.stream = mine FOR UPDATE;
    IF NOT FOUND OR (verb = 'resume') <> (p.state = 'paused') THEN
      RETURN CASE WHEN p.state = 'paused' THEN 'paused' WHEN p.state IS NULL THEN 'not parked' ELSE 'not paused' END;
    END IF;
    IF verb = 'skip' THEN
      SELECT e.seq, e.uuid INTO head, head_id FROM :"schema".outbox_parked_events e
       WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq > p.sent_seq ORDER BY e.seq LIMIT 1;
      -- The operator has seen this one at the head; by now it may have got through.
      IF head IS DISTINCT FROM my_seq OR head_id <> my_id THEN
        RETURN 'not at the head';
      END IF;
      UPDATE :"schema".outbox_parked_events e SET tombstone = 'skipped', payload = NULL, bytes = NULL
       WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = head;
    END IF;
    UPDATE :"schema".outbox_parked o SET state = 'parked', attempts = 0, next_attempt_at = clock_timestamp()
     WHERE o.dispatcher = my_dispatcher AND o.stream = mine;
  END IF;
  INSERT INTO :"schema".outbox_audit (verb, dispatcher, topic, key, seq, reason)
  VALUES (verb, my_dispatcher, my_topic, my_key, head, my_reason);
  RETURN 'done';
END
$$;

-- Forgets a dispatcher: its cursors, and what is put aside for it. Segments no longer wait for it.
CREATE FUNCTION :"schema".outbox_remove(my_dispatcher text, my_reason text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 'no dispatcher';
  END IF;
  IF EXISTS (SELECT FROM :"schema".leases l
              WHERE starts_with(l.name, 'Outbox:' || my_dispatcher || ':') AND l.token IS NOT NULL AND l.expires_at > clock_timestamp()) THEN
    RETURN 'running';
  END IF;
  -- Waits for cursors that are being moved: they would not be seen below, and be left behind, with what is put aside with them. Not for
  -- long: a dispatcher that moves one waits behind it.
  PERFORM set_config('lock_timeout', '2s', true);
  BEGIN
    LOCK TABLE :"schema".outbox_cursors IN SHARE ROW EXCLUSIVE MODE;
  EXCEPTION WHEN lock_not_available THEN
    RETURN 'running';
  END;
  PERFORM set_config('lock_timeout', '0', true);
  DELETE FROM :"schema".outbox_cursors o WHERE o.dispatcher = my_dispatcher;
  DELETE FROM :"schema".outbox_parked o WHERE o.dispatcher = my_dispatcher;
  DELETE FROM :"schema".outbox_parked_events o WHERE o.dispatcher = my_dispatcher;
  DELETE FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher;
  INSERT INTO :"schema".outbox_audit (verb, dispatcher, reason) VALUES ('remove', my_dispatcher, my_reason);
  RETURN 'done';
END
$$;

-- Takes the payloads of a stream away, wherever they are. Numbers and order stay; what is not delivered yet goes out as a tombstone.
CREATE FUNCTION :"schema".outbox_erase(my_topic text, my_key text, my_reason text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  mine uuid := :"schema".outbox_stream(my_topic, my_key);
  erased_now integer;
  copies integer;
BEGIN
  -- In the order of outbox_halt(), which has the events when it comes to the copies.
  LOCK TABLE :"schema".outbox_events IN ROW EXCLUSIVE MODE;
  LOCK TABLE :"schema".outbox_parked_events IN SHARE ROW EXCLUSIVE MODE;
  UPDATE :"schema".outbox_events e SET payload = NULL, bytes = NULL, headers = NULL, erased = true
   WHERE e.stream = mine AND NOT e.erased;
  GET DIAGNOSTICS erased_now = ROW_COUNT;
  UPDATE :"schema".outbox_parked_events e SET payload = NULL, bytes = NULL, headers = NULL, tombstone = COALESCE(e.tombstone, 'erased')
   WHERE e.stream = mine AND (e.payload IS NOT NULL OR e.bytes IS NOT NULL OR e.headers IS NOT NULL);
  GET DIAGNOSTICS copies = ROW_COUNT;
  UPDATE :"schema".outbox_dead e SET payload = NULL, bytes = NULL, headers = NULL WHERE e.stream = mine;
  INSERT INTO :"schema".outbox_audit (verb, topic, key, reason) VALUES ('erase', my_topic, my_key, my_reason);
  RETURN greatest(erased_now, copies);
END
$$;

-- From here on nobody enqueues, delivers, operates or looks after segments. Everybody takes locks in this order, as far as they take
-- them: registering has home, then dispatchers; removing one has dispatchers, then the rest; moving cursors has these before what is
-- put aside, of all shards of a message; erasing has events, then copies.
CREATE FUNCTION :"schema".outbox_halt() RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(:"schema".lock_id('outbox-retain', 'Outbox:rotate'));
  -- The slots, and not the table above them, which only some of those that write go through, and before their slot.
  LOCK TABLE :"schema".outbox_home, :"schema".outbox_dispatchers,
             :"schema".outbox_events_0, :"schema".outbox_events_1, :"schema".outbox_events_2, :"schema".outbox_events_3,
             :"schema".outbox_events_4, :"schema".outbox_events_5, :"schema".outbox_events_6, :"schema".outbox_events_7,
             :"schema".outbox_cursors, :"schema".outbox_parked, :"schema".outbox_parked_events IN EXCLUSIVE MODE;
END
$$;

-- After a dump was restored, or on a copy: the ids of transactions in it are another server's. What was not delivered by then, as far as
-- the cursors in the dump tell, is put aside, stream by stream ('undelivered'), or held for delivered ('none'); or everything is
-- delivered again ('all'). Then the cursors begin anew on this server.
CREATE FUNCTION :"schema".outbox_rebase(
  my_dispatcher text, choice text, this_system text, this_database text, this_timeline bigint, my_reason text
) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
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
             CASE WHEN e.erased THEN 'erased' END
        FROM :"schema".outbox_events e
       WHERE e.bucket * d.shards / 64 = n
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
  -- What is put aside now can have smaller numbers than what was sent.
  UPDATE :"schema".outbox_parked o SET sent_seq = 0 WHERE o.dispatcher = my_dispatcher AND o.sent_seq > 0;
  INSERT INTO :"schema".outbox_parked (dispatcher, stream, shard, topic, key, state, reason)
  SELECT DISTINCT my_dispatcher, e.stream, :"schema".outbox_bucket(e.stream) * d.shards / 64, e.topic, e.key, 'parked', 'rebase'
    FROM :"schema".outbox_parked_events e WHERE e.dispatcher = my_dispatcher
      ON CONFLICT DO NOTHING;
  UPDATE :"schema".outbox_dispatchers o SET system = this_system, database = this_database, timeline = this_timeline
   WHERE o.name = my_dispatcher;
  INSERT INTO :"schema".outbox_audit (verb, dispatcher, reason) VALUES ('rebase ' || choice, my_dispatcher, my_reason);
  RETURN put_aside;
END
$$;

-- The last step of a rebase, when every dispatcher has been through it: events of another server's transactions would else turn up
-- when this one's ids have come so far. Tells the numbers of segments that are torn: emptied while the dump was made, after its
-- snapshot and before it had locked them, so that it has neither their events nor the last numbers of their streams.
CREATE FUNCTION :"schema".outbox_forget_xids(this_system text) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM :"schema".outbox_halt();
  UPDATE :"schema".outbox_events e SET xid = '1'::xid8 WHERE e.xid <> '1'::xid8;
  UPDATE :"schema".outbox_segments s SET sealed_xid = pg_current_xact_id() WHERE s.sealed_xid IS NOT NULL;
  DELETE FROM :"schema".outbox_ticks;
  -- Numbers can begin at 1 again here.
  UPDATE :"schema".outbox_parked p SET sent_seq = 0 WHERE p.sent_seq > 0;
  INSERT INTO :"schema".outbox_home (system) VALUES (this_system) ON CONFLICT (one) DO UPDATE SET system = EXCLUDED.system;
  -- Where segments changed while the dump was made, it knows the new one by the sequence alone.
  INSERT INTO :"schema".outbox_segments (slot, number, opened_at)
  SELECT o.last_value, (SELECT COALESCE(max(s.number), 0) + 1 FROM :"schema".outbox_segments s), clock_timestamp()
    FROM :"schema".outbox_slot o ON CONFLICT DO NOTHING;
  -- A segment is not left before it has events.
  RETURN ARRAY(SELECT s.number FROM :"schema".outbox_segments s
                WHERE s.left_at IS NOT NULL AND s.kept_at IS NULL
                  AND NOT EXISTS (SELECT FROM :"schema".outbox_events e WHERE e.slot = s.slot) ORDER BY s.number);
END
$$;

-- What runs with the owner's rights is nobody else's until it is granted: docs/operating/outbox.md has a list for each role.
REVOKE EXECUTE ON FUNCTION
  :"schema".outbox_register, :"schema".outbox_prepare_segment, :"schema".outbox_rotate, :"schema".outbox_seal,
  :"schema".outbox_passed, :"schema".outbox_retention, :"schema".outbox_keep, :"schema".outbox_drop, :"schema".outbox_emptied,
  :"schema".outbox_operate, :"schema".outbox_remove,
  :"schema".outbox_erase, :"schema".outbox_halt, :"schema".outbox_rebase, :"schema".outbox_forget_xids
FROM PUBLIC;
