-- compatible-from: 1
-- How the outbox is read: cursors, windows, and streams that wait.

-- Numbers in progress, of a snapshot.
CREATE FUNCTION :"schema".outbox_running(given pg_snapshot) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT count(*)::integer FROM pg_snapshot_xip(given) $$;

-- What belongs to a shard is done under this lock: shared by its owner, exclusively by whoever takes it over. So nothing that the last
-- owner had begun is still on its way when the next one reads.
CREATE FUNCTION :"schema".outbox_shard_lock(my_dispatcher text, my_shard smallint) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT :"schema".lock_id('outbox-shard', my_dispatcher || ':' || my_shard) $$;

-- Where the caller is. A restored dump, or a copy, brings along the cursors, the leases and even the life that its original had: so
-- they are compared with the server itself, in every call. A dispatcher that runs while its address leads to another server would go
-- on with them. (23 us a call.) life is null where none has begun here.
CREATE FUNCTION :"schema".outbox_here(my_dispatcher text, OUT life text, OUT elsewhere boolean)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  this_system bigint := (SELECT s.system_identifier FROM pg_control_system() AS s);
  this_database oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
BEGIN
  SELECT (SELECT i.value::text FROM :"schema".incarnation i WHERE i.system = this_system AND i.database = this_database),
         NOT EXISTS (SELECT FROM :"schema".outbox_home h WHERE h.system = this_system::text)
         OR EXISTS (SELECT FROM :"schema".outbox_dispatchers d
                     WHERE d.name = my_dispatcher AND (d.system <> this_system::text OR d.database <> this_database::text))
    INTO life, elsewhere;
END
$$;

-- Makes a shard's cursor the caller's: from here on nobody with an older fence can move it. A new dispatcher begins with the oldest
-- event that there is. The fence must have been given out in the server epoch my_life. Verdicts: taken, lost (a newer fence, or another
-- server epoch), elsewhere (the cursors were made on another server), removed (an operator has removed the dispatcher, or it was
-- registered again with another number of shards): a process that was stopped meanwhile must not create its cursors again.
CREATE FUNCTION :"schema".outbox_take(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, shard_count integer
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  c :"schema".outbox_cursors;
  here record;
BEGIN
  PERFORM pg_advisory_xact_lock(:"schema".outbox_shard_lock(my_dispatcher, my_shard));
  -- Waits for outbox_remove(), and is waited for by it.
  PERFORM FROM :"schema".outbox_dispatchers d WHERE d.name = my_dispatcher AND d.shards = shard_count FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN 'removed';
  END IF;
  SELECT * INTO here FROM :"schema".outbox_here(my_dispatcher);
  IF here.elsewhere THEN
    RETURN 'elsewhere';
  END IF;
  IF here.life IS DISTINCT FROM my_life THEN
    RETURN 'lost';
  END IF;
  FOR try IN 1 .. 10 LOOP
    SELECT * INTO c FROM :"schema".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1;
    IF c.fence >= my_fence THEN
      RETURN CASE WHEN c.fence = my_fence THEN 'taken' ELSE 'lost' END;
    END IF;
    INSERT INTO :"schema".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
    VALUES (my_dispatcher, my_shard, COALESCE(c.version, 0) + 1, my_fence, COALESCE(c.prev, '1:1:'), COALESCE(c.next, '1:1:'),
            COALESCE(c.after_id, 0), COALESCE(c.done, true), COALESCE(c.seen_id, 0))
        ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN 'taken';
    END IF;
  END LOOP;
  RETURN 'lost';
END
$$;

-- (By index, here and below: tables that were emptied a moment ago look small to the planner, and are read from end to end.)
-- Moves a shard's cursor: from the version that the caller has read, with its fence, in the same life of the server. What the caller
-- remembers of a life that has ended (transaction ids above all) is worth nothing. In the same step, the events of streams that wait
-- are put aside: waiting is a list of { topic, key, seqs, reason, state, attempts, delay_ms }.
CREATE FUNCTION :"schema".outbox_advance(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_version bigint, my_life text,
  new_prev pg_snapshot, new_next pg_snapshot, new_after bigint, new_done boolean, new_seen bigint,
  waiting jsonb DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
BEGIN
  -- Not before it is sent, only that it is sent: what a crash takes back is sent once more.
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM pg_advisory_xact_lock_shared(:"schema".outbox_shard_lock(my_dispatcher, my_shard));
  IF NOT EXISTS (SELECT FROM :"schema".outbox_here(my_dispatcher) AS h WHERE h.life = my_life AND NOT h.elsewhere) THEN
    RETURN false;
  END IF;
  INSERT INTO :"schema".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
  SELECT my_dispatcher, my_shard, my_version + 1, my_fence, new_prev, new_next, new_after, new_done, new_seen
    FROM (SELECT o.version, o.fence FROM :"schema".outbox_cursors o
           WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1) AS c
   WHERE c.version = my_version AND c.fence = my_fence
      ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF my_version % 100 = 0 THEN
    -- Not all that there ever were, but now and then: deleted ones stay in the index while a session holds an old snapshot.
    DELETE FROM :"schema".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard AND o.version < my_version
       AND o.version >= my_version - CASE WHEN my_version % 10000 = 0 THEN my_version ELSE 300 END;
  END IF;
  IF waiting IS NOT NULL THEN
    -- Before the events are read: whoever erases payloads waits for copies that are being made, and they for it.
    LOCK TABLE :"schema".outbox_parked_events IN ROW EXCLUSIVE MODE;
    INSERT INTO :"schema".outbox_parked (dispatcher, stream, shard, topic, key, state, attempts, reason, next_attempt_at, sent_seq)
    SELECT my_dispatcher, :"schema".outbox_stream(w.topic, w.key), my_shard, w.topic, w.key, COALESCE(w.state, 'parked'),
           COALESCE(w.attempts, 0), w.reason, clock_timestamp() + make_interval(secs => COALESCE(w.delay_ms, 0) / 1000.0),
           (SELECT min(s.seq) - 1 FROM unnest(w.seqs) AS s(seq))
      FROM jsonb_to_recordset(waiting)
             AS w(topic text, key text, seqs bigint[], state text, attempts integer, reason text, delay_ms float8)
        ON CONFLICT DO NOTHING;
    INSERT INTO :"schema".outbox_parked_events
    SELECT my_dispatcher, e.stream, e.seq, e.id, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers,
           CASE WHEN e.erased THEN 'erased' END
      FROM jsonb_to_recordset(waiting) AS w(topic text, key text, seqs bigint[])
      CROSS JOIN LATERAL unnest(w.seqs) AS s(seq)
      JOIN :"schema".outbox_events e ON e.stream = :"schema".outbox_stream(w.topic, w.key) AND e.seq = s.seq
        ON CONFLICT DO NOTHING;
  END IF;
  RETURN true;
END
$$;

-- The transactions of a window with the buckets that they have events in; nulls where they are more than a few. Steps from one to the
-- next on the index, so that it costs the same however many events each has.
CREATE FUNCTION :"schema".outbox_window_parts(
  slots smallint[], buckets smallint[], a pg_snapshot, z pg_snapshot, OUT part_buckets smallint[], OUT part_xids xid8[]
) LANGUAGE plpgsql STABLE
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
  at xid8;
BEGIN
  SELECT array_agg(b), array_agg(x) INTO part_buckets, part_xids FROM unnest(buckets) AS b CROSS JOIN pg_snapshot_xip(a) AS x;
  FOR i IN 1 .. cardinality(buckets) LOOP
    at := (pg_snapshot_xmax(a)::text::bigint - 1)::text::xid8;
    LOOP
      IF cardinality(part_xids) > 300 THEN
        SELECT INTO part_buckets, part_xids NULL, NULL; RETURN;
      END IF;
      SELECT e.xid INTO at FROM :"schema".outbox_events e
       WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = buckets[i]
         AND e.xid > at AND e.xid < pg_snapshot_xmax(z)
       ORDER BY e.bucket, e.xid LIMIT 1;
      EXIT WHEN NOT FOUND;
      SELECT part_buckets || buckets[i], part_xids || at INTO part_buckets, part_xids;
    END LOOP;
  END LOOP;
END
$$;

-- The next events of shards, as far as their cursors say, at most max_events of each. After the events of a shard comes a row that
-- tells its window: what to write back. Times and bytes are told in a way that no setting of the session changes. `prev` to `next` is
-- either what is being read already or, when that is done, what has been committed since; a long way is gone in steps from tick to
-- tick. The caller must not have a transaction id.
DO $do$
DECLARE
  columns text := $select$SELECT <shard>, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
               w.id, w.topic, w.key, w.seq, w.uuid, (extract(epoch FROM w.enqueued_at) * 1000)::bigint, w.payload::text,
               encode(w.bytes, 'hex'), w.headers::text, CASE WHEN w.erased THEN 'erased' END,
               CASE WHEN w.stream IN (SELECT p.stream FROM$select$;
  reads text := (SELECT string_agg(replace($read$
      WHEN slots[1] = <slot> THEN
        RETURN QUERY <select> :"schema".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN 'waits' END, NULL::text
          FROM (SELECT * FROM :"schema".outbox_events_<slot> e
                 WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                UNION ALL
                SELECT * FROM :"schema".outbox_events_<slot> e
                 WHERE cardinality(running) > 0 AND e.bucket = ANY(buckets) AND e.xid = ANY(running) AND e.id > floor) AS w
         WHERE pg_visible_in_snapshot(w.xid, z) ORDER BY w.id LIMIT max_events;$read$, '<slot>', n::text), '' ORDER BY n)
    FROM generate_series(0, 7) AS n);
BEGIN
  EXECUTE replace(replace(replace($create$
CREATE FUNCTION :"schema".outbox_fetch(
  my_dispatcher text, my_shards smallint[], my_fences bigint[], shard_count integer, max_events integer
) RETURNS TABLE (
  shard smallint, verdict text, life text, prev text, next text, version bigint, last_id bigint, parked_due_ms bigint,
  event_id bigint, topic text, key text, seq bigint, uuid uuid, enqueued_ms bigint, payload text, hex text, headers text,
  tombstone text, waits text, stale text
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $body$
DECLARE
  c :"schema".outbox_cursors;
  a pg_snapshot;
  z pg_snapshot;
  tick pg_snapshot;
  running xid8[];
  source text;
  events text;
  few_buckets smallint[];
  few_xids xid8[];
  buckets smallint[];
  slots smallint[];
  floor bigint;
  resumed boolean;
  found_events integer;
  written pg_lsn;
  here record;
  -- What is on disk here may not be on the standby yet, and visible all the same: a COMMIT that is cancelled, or terminated, while it
  -- waits for the standby is a commit.
  alone boolean := current_setting('synchronous_standby_names') = '';
  -- So many ticks hold about as many events as are wanted.
  stride integer := greatest(1, max_events * shard_count / 1000);
BEGIN
  SELECT * INTO here FROM :"schema".outbox_here(my_dispatcher);
  IF here.elsewhere THEN
    RETURN QUERY SELECT s, 'elsewhere', NULL, NULL, NULL, NULL::bigint, NULL::bigint, NULL::bigint,
                        NULL::bigint, NULL, NULL, NULL::bigint, NULL::uuid, NULL::bigint, NULL, NULL, NULL, NULL, NULL, NULL
                   FROM unnest(my_shards) AS s;
    RETURN;
  END IF;
  FOR i IN 1 .. cardinality(my_shards) LOOP
    SELECT * INTO c FROM :"schema".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shards[i] ORDER BY o.version DESC LIMIT 1;
    IF c.fence IS DISTINCT FROM my_fences[i] THEN
      shard := my_shards[i];
      verdict := 'lost';
      RETURN NEXT;
      CONTINUE;
    END IF;
    buckets := ARRAY(SELECT generate_series(my_shards[i] * 64 / shard_count, (my_shards[i] + 1) * 64 / shard_count - 1)::smallint);
    resumed := NOT c.done;
    IF c.done THEN
      a := c.next;
      z := NULL;
      floor := 0;
    ELSE
      a := c.prev;
      z := c.next;
      floor := c.after_id;
    END IF;
    LOOP
      tick := NULL;
      IF z IS NULL THEN
        SELECT t.snapshot INTO tick FROM :"schema".outbox_ticks t
         WHERE t.newest >= pg_snapshot_xmax(a)
           AND (t.newest > pg_snapshot_xmax(a) OR t.running < :"schema".outbox_running(a))
         ORDER BY t.newest, t.running DESC OFFSET stride - 1 LIMIT 1;
        z := COALESCE(tick, pg_current_snapshot());
      END IF;
      running := ARRAY(SELECT pg_snapshot_xip(a));
      -- Not those that everybody had left before the window begins; the current one always: a restored dump may not know it.
      slots := ARRAY(SELECT s.slot FROM :"schema".outbox_segments s
                      WHERE s.sealed_xid IS NULL OR s.sealed_xid > pg_snapshot_xmin(a)
                     UNION SELECT o.last_value FROM :"schema".outbox_slot o);
      -- The rest of a window of few transactions, such as one that wrote a million events: read anew for every piece, 6,500/s;
      -- transaction by transaction, from where the last piece ended, 47,000/s.
      few_buckets := NULL;
      IF resumed AND floor > 0 THEN
        SELECT * INTO few_buckets, few_xids FROM :"schema".outbox_window_parts(slots, buckets, a, z);
      END IF;
      -- Mostly there is one slot, and the plan for it is kept. One plan for all slots would lock all of them, and wait for whoever
      -- empties one; without one kept, the planning takes four fifths of the time when there is little to read.
      CASE WHEN cardinality(slots) > 1 OR few_buckets IS NOT NULL THEN
        source := CASE WHEN cardinality(slots) = 1 THEN format('%I.outbox_events_%s', :'schema', slots[1])
                       ELSE format('(SELECT * FROM %I.outbox_events WHERE slot = ANY(%L::smallint[]))', :'schema', slots) END;
        events := CASE WHEN few_buckets IS NULL
          THEN format('SELECT * FROM %1$s AS e WHERE e.bucket = ANY($2) AND e.xid >= $3 AND e.xid < $4 AND e.id > $5 UNION ALL
                       SELECT * FROM %1$s AS e WHERE e.bucket = ANY($2) AND e.xid = ANY($6) AND e.id > $5', source)
          ELSE format('SELECT e.* FROM unnest($7, $8) AS p(bucket, xid) CROSS JOIN LATERAL (
                         SELECT * FROM %s AS v WHERE v.bucket = p.bucket AND v.xid = p.xid AND v.id > $5 ORDER BY v.id LIMIT $9
                       ) AS e', source) END;
        RETURN QUERY EXECUTE format($query$<select> %I.outbox_parked p WHERE p.dispatcher = $10 AND p.shard = $1) THEN 'waits' END, NULL::text
          FROM (%s) AS w WHERE pg_visible_in_snapshot(w.xid, $11) ORDER BY w.id LIMIT $9 $query$, :'schema', events)
          USING my_shards[i], buckets, pg_snapshot_xmax(a), pg_snapshot_xmax(z), floor, running, few_buckets, few_xids, max_events,
                my_dispatcher, z;<reads>
      END CASE;
      GET DIAGNOSTICS found_events = ROW_COUNT;
      EXIT WHEN found_events > 0 OR (tick IS NULL AND NOT resumed);
      -- Nothing for this shard up to that tick, or no more in the window that was being read: on to the next.
      resumed := false;
      a := z;
      z := NULL;
      floor := 0;
    END LOOP;
    -- Whatever is visible in the window has its commit before this place in the log.
    written := pg_current_wal_insert_lsn();
    shard := my_shards[i];
    verdict := CASE WHEN alone AND pg_current_wal_flush_lsn() >= written THEN 'durable' ELSE 'visible' END;
    life := here.life;
    prev := a::text;
    next := z::text;
    version := c.version;
    last_id := (SELECT s.last_value FROM :"schema".outbox_ids s);
    -- A segment waits for this cursor to be written, and it could be by now.
    stale := (SELECT 'stale' FROM :"schema".outbox_segments s
               WHERE s.sealed_xid > pg_snapshot_xmin(CASE WHEN c.done THEN c.next ELSE c.prev END)
                 AND s.sealed_xid <= pg_snapshot_xmin(z) LIMIT 1);
    parked_due_ms := (SELECT ceil(extract(epoch FROM min(p.next_attempt_at) - clock_timestamp()) * 1000)::bigint
                        FROM :"schema".outbox_parked p
                       WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i] AND p.state = 'parked');
    RETURN NEXT;
  END LOOP;
END
$body$ $create$,
    '$query$<select>', '$query$' || replace(columns, '<shard>', '$1')),
    '<reads>', reads), '<select>', replace(columns, '<shard>', 'my_shards[i]'));
END
$do$;

-- Brings everything that is visible to disk, and to the standby that commits wait for: a transaction that is flushed takes all before
-- it along. Tells in which life of the server that was: what was read in another one may be gone. The caller's COMMIT is not enough:
-- one that is cancelled while it waits for the standby is answered as any other, with a warning beside it. So the caller must hear
-- warnings, which no setting of its session may hide, or ask outbox_replicated() about the place that it gets, null where no
-- standby is waited for.
CREATE FUNCTION :"schema".outbox_flush(OUT life text, OUT place pg_lsn)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  PERFORM set_config('client_min_messages', 'warning', true);
  place := pg_logical_emit_message(true, 'lockstep', '');
  IF current_setting('synchronous_standby_names') = '' THEN
    place := NULL;
  END IF;
  life := (SELECT h.life FROM :"schema".outbox_here(NULL::text) AS h);
END
$$;

-- Whether as many synchronous standbys have this place of the log on disk as commits wait for. Null where the schema's owner has no
-- right to know (pg_read_all_stats).
CREATE FUNCTION :"schema".outbox_replicated(place pg_lsn) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  -- As in ANY 2 (a, b, c) or FIRST 1 (a, b) or 2 (a, b); a list alone is FIRST 1.
  wanted integer := COALESCE(substring(current_setting('synchronous_standby_names') FROM '^[^"(]*?([0-9]+)\s*\(')::integer, 1);
BEGIN
  IF NOT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') THEN
    RETURN NULL;
  END IF;
  RETURN (SELECT count(*) >= wanted FROM pg_stat_replication r WHERE r.sync_state IN ('sync', 'quorum') AND r.flush_lsn >= place);
END
$$;

-- Whether the caller owns the shard, in the server epoch in which it read what it goes by. After an asynchronous failover the same
-- fence can still be in the cursor, and the same numbers can name other events.
CREATE FUNCTION :"schema".outbox_owns(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
  SELECT COALESCE((SELECT o.fence = my_fence FROM :"schema".outbox_cursors o
                    WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1), false)
     AND EXISTS (SELECT FROM :"schema".outbox_here(my_dispatcher) AS h WHERE h.life = my_life AND NOT h.elsewhere)
$$;

-- What runs with the owner's rights is nobody else's until it is granted: docs/operating/outbox.md has a list for each role.
REVOKE EXECUTE ON FUNCTION
  :"schema".outbox_here, :"schema".outbox_take, :"schema".outbox_advance, :"schema".outbox_fetch, :"schema".outbox_flush,
  :"schema".outbox_replicated, :"schema".outbox_owns
FROM PUBLIC;
