-- Schema version 6, made by the library of 5f888c39c86db468cc17fc9c7433e369e82c69ce.
SET check_function_bodies = false;

CREATE SCHEMA lockstep;

CREATE FUNCTION lockstep.current_incarnation() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$ SELECT i.value::text FROM "lockstep".incarnation i $$;

CREATE FUNCTION lockstep.enqueue(topic text, key text, payload json, headers json DEFAULT NULL::json) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$ SELECT "lockstep".outbox_append(topic, key, payload, NULL::bytea, headers, NULL::bigint, NULL::uuid) $$;

CREATE FUNCTION lockstep.enqueue_bytes(topic text, key text, payload bytea, headers json DEFAULT NULL::json) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$ SELECT "lockstep".outbox_append(topic, key, NULL::json, payload, headers, NULL::bigint, NULL::uuid) $$;

CREATE UNLOGGED TABLE lockstep.incarnation (
    one boolean DEFAULT true NOT NULL,
    value uuid NOT NULL,
    epoch bigint NOT NULL,
    timeline text NOT NULL,
    system bigint NOT NULL,
    database oid NOT NULL,
    began_at timestamp with time zone NOT NULL,
    CONSTRAINT incarnation_one_check CHECK (one)
);

CREATE FUNCTION lockstep.ensure_incarnation() RETURNS lockstep.incarnation
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  here oid := (SELECT oid FROM pg_database WHERE datname = current_database());
  this_system bigint := (SELECT system_identifier FROM pg_control_system());
  this_timeline text;
  number bigint;
  fences regclass;
  found_row "lockstep".incarnation;
BEGIN
  SELECT * INTO found_row FROM "lockstep".incarnation i WHERE i.database = here AND i.system = this_system;
  IF FOUND THEN
    RETURN found_row;
  END IF;
  PERFORM pg_advisory_xact_lock("lockstep".lock_id('incarnation', 'Incarnation:global'));
  SELECT * INTO found_row FROM "lockstep".incarnation i WHERE i.database = here AND i.system = this_system;
  IF FOUND THEN
    RETURN found_row;
  END IF;
  -- The generation must be on disk before anything is derived from it.
  PERFORM set_config('synchronous_commit', 'on', true);
  -- Not from pg_control_checkpoint(), which names the old one until the first checkpoint after a promotion, minutes later.
  this_timeline := substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8);
  number := ('x' || this_timeline)::bit(32)::bigint;
  DELETE FROM "lockstep".incarnation;
  UPDATE "lockstep".epoch e
     SET system = this_system, database = here, timeline = number,
         timeline_offset = CASE WHEN e.system = this_system AND e.database = here AND e.timeline <= number
                                THEN e.timeline_offset ELSE e.timeline_offset + e.timeline END;
  fences := '"lockstep".fences'::regclass;
  PERFORM setval(fences, greatest(nextval(fences), least(2 ^ 39, extract(epoch FROM clock_timestamp()) * 1000 - 1735689600000)::bigint));
  INSERT INTO "lockstep".incarnation (value, epoch, timeline, system, database, began_at)
    SELECT gen_random_uuid(), e.timeline + e.timeline_offset, this_timeline, this_system, here, clock_timestamp()
      FROM "lockstep".epoch e
    RETURNING * INTO found_row;
  RETURN found_row;
END
$$;

CREATE FUNCTION lockstep.foreign_lock_holders(most integer) RETURNS TABLE(pid integer, role text, application text, id bigint, held boolean, what text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
  space oid := (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'lockstep');
  groups bigint := "lockstep".outbox_group_lock(0);
BEGIN
  RETURN QUERY
  WITH listed AS MATERIALIZED (
    SELECT l.pid, (l.classid::bigint << 32) | l.objid::bigint AS id, l.granted, a.usename::text AS role, a.application_name,
           COALESCE(has_schema_privilege(a.usesysid, space, 'USAGE'), false) AS ours
      FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.database = here
  ), internal AS MATERIALIZED (
    SELECT * FROM (VALUES ("lockstep".lock_id('incarnation', 'Incarnation:global'), 'the lock of the server epoch'),
                          ("lockstep".lock_id('migrate', 'Migrate:global'), 'the lock of migrations'),
                          ("lockstep".lock_id('leases', 'CleanUp:all'), 'the lock of cleaning leases up')) AS given(id, name)
    UNION ALL
    SELECT "lockstep".outbox_shard_lock(d.name, n.shard::smallint), format('shard %s of the dispatcher %s', n.shard, d.name)
      FROM "lockstep".outbox_dispatchers d CROSS JOIN LATERAL generate_series(0, d.shards - 1) AS n(shard)
  )
  SELECT f.pid, f.role, COALESCE(f.application_name, ''), f.id, f.granted, k.name
    FROM listed f CROSS JOIN LATERAL (SELECT COALESCE(
           (SELECT 'the lock on ' || n.key FROM "lockstep".lock_names n WHERE n.id = f.id),
           (SELECT i.name FROM internal i WHERE i.id = f.id LIMIT 1),
           CASE WHEN (f.id # groups) BETWEEN 0 AND 63 THEN format('group %s of the outbox', f.id # groups) END,
           -- A stream's number is the first half of its uuid.
           (SELECT format('the stream %s/%s of the outbox', e.topic, e.key) FROM "lockstep".outbox_events e
             WHERE e.stream BETWEEN (lpad(to_hex(f.id), 16, '0') || '0000000000000000')::uuid
                                AND (lpad(to_hex(f.id), 16, '0') || 'ffffffffffffffff')::uuid LIMIT 1),
           CASE WHEN EXISTS (SELECT FROM listed o WHERE o.id = f.id AND o.ours) THEN format('the lock %s, which Lockstep uses', f.id) END
         ) AS name) AS k
   WHERE NOT f.ours AND k.name IS NOT NULL
   ORDER BY f.granted DESC, f.pid, f.id LIMIT most;
END
$$;

CREATE FUNCTION lockstep.idempotency_clean_up(most integer) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  DELETE FROM "lockstep".idempotency
   WHERE (scope, key) IN (SELECT s.scope, s.key FROM "lockstep".idempotency s WHERE s.expires_at <= clock_timestamp()
                           ORDER BY s.expires_at LIMIT most FOR UPDATE SKIP LOCKED)
$$;

CREATE FUNCTION lockstep.idempotency_keep(my_scope text, my_key text, my_fingerprint bytea, my_status integer, my_headers json, my_body bytea, ttl_ms double precision) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  INSERT INTO "lockstep".idempotency AS stored (scope, key, fingerprint, status, headers, body, created_at, expires_at)
  VALUES (my_scope, my_key, my_fingerprint, my_status, my_headers, my_body, clock_timestamp(),
          clock_timestamp() + make_interval(secs => ttl_ms / 1000))
      ON CONFLICT (scope, key) DO UPDATE
     SET fingerprint = excluded.fingerprint, status = excluded.status, headers = excluded.headers, body = excluded.body,
         created_at = excluded.created_at, expires_at = excluded.expires_at
   WHERE stored.expires_at <= clock_timestamp();
  RETURN FOUND;
END
$$;

CREATE FUNCTION lockstep.idempotency_look(my_scope text, my_key text, lease_name text, OUT fingerprint bytea, OUT status integer, OUT headers json, OUT body bytea, OUT left_ms bigint) RETURNS record
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  SELECT s.fingerprint, s.status, s.headers, s.body INTO fingerprint, status, headers, body FROM "lockstep".idempotency s
   WHERE s.scope = my_scope AND s.key = my_key AND s.expires_at > clock_timestamp();
  left_ms := (SELECT ceil(extract(epoch FROM l.expires_at - clock_timestamp()) * 1000)::bigint FROM "lockstep".leases l
               WHERE l.name = lease_name AND l.token IS NOT NULL AND l.expires_at > clock_timestamp() ORDER BY l.slot LIMIT 1);
END
$$;

CREATE FUNCTION lockstep.inbox_accept(my_consumer text, my_topic text, my_key text, my_seq bigint, my_uuid uuid, tombstone boolean DEFAULT false, start bigint DEFAULT 1) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
  taken text := CASE WHEN tombstone THEN 'tombstone' ELSE 'first' END;
  last_seq bigint;
  last_uuid uuid;
BEGIN
  IF my_uuid IS NULL OR (my_seq >= 1 AND start >= 1) IS NOT TRUE THEN
    RAISE EXCEPTION 'an event needs a uuid, a number from 1 on and a start from 1 on' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  LOOP
    UPDATE "lockstep".inbox i SET seq = my_seq, uuid = my_uuid
     WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key AND i.seq = my_seq - 1;
    IF FOUND THEN
      RETURN taken;
    END IF;
    SELECT i.seq, i.uuid INTO last_seq, last_uuid FROM "lockstep".inbox i
     WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key;
    IF NOT FOUND THEN
      -- Also where the event does not begin the stream: this waits for a transaction that begins it just now.
      INSERT INTO "lockstep".inbox (consumer, topic, key, seq, uuid)
      VALUES (my_consumer, my_topic, my_key, CASE WHEN my_seq = start THEN my_seq ELSE start - 1 END,
              CASE WHEN my_seq = start THEN my_uuid END)
          ON CONFLICT DO NOTHING;
      IF FOUND THEN
        IF my_seq > start THEN
          -- No transaction has begun the stream, and this event does not: with a row left behind, no other start would count.
          DELETE FROM "lockstep".inbox i WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key;
          RETURN 'gap:' || start;
        END IF;
        RETURN CASE WHEN my_seq = start THEN taken ELSE 'duplicate' END;
      END IF;
    ELSIF my_seq <= last_seq THEN
      -- Committed, or this transaction's own: rows only move on.
      RETURN CASE WHEN my_seq = last_seq AND last_uuid <> my_uuid THEN 'diverged' ELSE 'duplicate' END;
    ELSE
      -- The one before may be at work in another transaction.
      SELECT i.seq INTO last_seq FROM "lockstep".inbox i
       WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key FOR NO KEY UPDATE;
      IF FOUND AND my_seq > last_seq + 1 THEN
        RETURN 'gap:' || (last_seq + 1);
      END IF;
    END IF;
  END LOOP;
END
$$;

CREATE FUNCTION lockstep.inbox_accept_runs(my_consumer text, topics text[], keys text[], firsts bigint[], counts integer[], uuids uuid[], starts bigint[], idle_ms integer DEFAULT 0) RETURNS TABLE(place integer, verdict text, seq bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
  idle_now CONSTANT numeric := extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000;
  moved int[];
  is_moved boolean[];
  run record;
  last_uuid uuid;
  begins boolean;
BEGIN
  IF idle_ms > 0 AND (idle_now = 0 OR idle_now > idle_ms) THEN
    PERFORM set_config('idle_in_transaction_session_timeout', idle_ms::text, true);
  END IF;
  IF array_position(uuids, NULL) IS NOT NULL OR cardinality(uuids) <> (SELECT sum(c) FROM unnest(counts) c)
     OR EXISTS (SELECT FROM unnest(topics, firsts, counts, starts) r (topic, first, count, start)
                 WHERE (r.topic IS NOT NULL AND r.first >= 1 AND r.count >= 1 AND r.start >= 1) IS NOT TRUE) THEN
    RAISE EXCEPTION 'a run needs a stream, numbers from 1 on, a uuid for each, and a start from 1 on'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  WITH done AS (
    UPDATE "lockstep".inbox i SET seq = r.last, uuid = uuids[r.past]
      FROM (SELECT u.place, u.first, u.first + u.count - 1 AS last, u.past, l.tid
              FROM (SELECT n.*, sum(n.count) OVER (ORDER BY n.place)::int AS past
                      FROM unnest(topics, keys, firsts, counts) WITH ORDINALITY n (topic, key, first, count, place)
                     ORDER BY n.topic COLLATE "C", n.key COLLATE "C") u
             CROSS JOIN LATERAL (SELECT j.ctid AS tid FROM "lockstep".inbox j
                                  WHERE j.consumer = my_consumer AND j.topic = u.topic AND j.key = u.key AND j.seq = u.first - 1
                                 OFFSET 0) l
            OFFSET 0) r
     WHERE i.ctid = r.tid AND i.seq = r.first - 1 RETURNING r.place
  )
  SELECT array_agg(d.place) INTO moved FROM done d;
  IF cardinality(moved) = cardinality(topics) THEN
    RETURN;
  END IF;
  is_moved := array_fill(false, ARRAY[cardinality(topics)]);
  FOREACH place IN ARRAY coalesce(moved, '{}') LOOP
    is_moved[place] := true;
  END LOOP;
  FOR run IN
    SELECT * FROM (SELECT n.*, n.first + n.count - 1 AS last, sum(n.count) OVER (ORDER BY n.place)::int AS past
                     FROM unnest(topics, keys, firsts, counts, starts) WITH ORDINALITY n (topic, key, first, count, start, place)) u
     WHERE NOT is_moved[u.place] ORDER BY u.topic COLLATE "C", u.key COLLATE "C"
  LOOP
    begins := false;
    LOOP
      SELECT i.seq, i.uuid INTO seq, last_uuid FROM "lockstep".inbox i
       WHERE i.consumer = my_consumer AND i.topic = run.topic AND i.key = run.key FOR NO KEY UPDATE;
      EXIT WHEN FOUND;
      -- This waits for a session that begins the stream at this moment.
      INSERT INTO "lockstep".inbox (consumer, topic, key, seq) VALUES (my_consumer, run.topic, run.key, run.start - 1)
          ON CONFLICT DO NOTHING;
      begins := FOUND;
    END LOOP;
    place := run.place;
    verdict := CASE
      WHEN run.first > seq + 1 THEN 'gap'
      WHEN seq BETWEEN run.first AND run.last AND uuids[run.past - (run.last - seq)::int] <> last_uuid THEN 'diverged'
      WHEN seq >= run.last THEN 'duplicate'
      ELSE 'accepted'
    END;
    IF verdict = 'accepted' THEN
      UPDATE "lockstep".inbox i SET seq = run.last, uuid = uuids[run.past]
       WHERE i.consumer = my_consumer AND i.topic = run.topic AND i.key = run.key;
    ELSIF begins THEN
      -- Of which nothing was taken has not begun.
      DELETE FROM "lockstep".inbox i WHERE i.consumer = my_consumer AND i.topic = run.topic AND i.key = run.key;
    END IF;
    IF verdict <> 'accepted' OR seq <> run.first - 1 THEN
      RETURN NEXT;
    END IF;
  END LOOP;
END
$$;

CREATE FUNCTION lockstep.inbox_position(my_consumer text, my_topic text, my_key text) RETURNS TABLE(seq bigint, uuid uuid)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  SELECT i.seq, i.uuid FROM "lockstep".inbox i WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key
$$;

CREATE FUNCTION lockstep.inbox_start(my_consumer text, my_topic text, my_key text, start bigint, force boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  INSERT INTO "lockstep".inbox AS i (consumer, topic, key, seq) VALUES (my_consumer, my_topic, my_key, start - 1)
      ON CONFLICT (consumer, topic, key) DO UPDATE SET seq = excluded.seq, uuid = NULL WHERE force;
  RETURN FOUND;
END
$$;

CREATE FUNCTION lockstep.lease_clean_up(keep_history bigint, idle_ms bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  before timestamptz := clock_timestamp() - make_interval(secs => greatest(idle_ms, 60000) / 1000.0);
BEGIN
  DELETE FROM "lockstep".lease_history
   WHERE id IN (SELECT h.id FROM "lockstep".lease_history h
                 WHERE h.id <= (SELECT max(m.id) FROM "lockstep".lease_history m) - greatest(keep_history, 1000) ORDER BY h.id LIMIT 1000);
  DELETE FROM "lockstep".lease_waiters w WHERE w.expires_at < before;
  PERFORM pg_advisory_xact_lock("lockstep".lock_id('leases', 'CleanUp:all'));
  DELETE FROM "lockstep".leases
   WHERE (name, slot) IN (SELECT l.name, l.slot FROM "lockstep".leases l WHERE l.expires_at < before LIMIT 1000 FOR UPDATE SKIP LOCKED);
END
$$;

CREATE FUNCTION lockstep.lease_counts(OUT held bigint, OUT waiting bigint, OUT names bigint) RETURNS record
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  WITH held AS MATERIALIZED (
    SELECT DISTINCT l.name FROM "lockstep".leases l WHERE l.token IS NOT NULL AND l.expires_at > clock_timestamp()
  ), waiting AS MATERIALIZED (
    SELECT w.name FROM "lockstep".lease_waiters w WHERE w.expires_at > clock_timestamp()
  )
  SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM waiting),
         (SELECT count(*) FROM (SELECT h.name FROM held h UNION SELECT w.name FROM waiting w) AS each)
$$;

CREATE TABLE lockstep.lease_history (
    id bigint NOT NULL,
    name text NOT NULL,
    slot integer NOT NULL,
    fence bigint NOT NULL,
    holder text NOT NULL,
    metadata jsonb,
    acquired_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    ending text NOT NULL,
    ended_by text,
    reason text,
    CONSTRAINT lease_history_ending_check CHECK ((ending = ANY (ARRAY['released'::text, 'expired'::text, 'forced'::text])))
);

CREATE FUNCTION lockstep.lease_endings(wanted text, most integer) RETURNS SETOF lockstep.lease_history
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$ SELECT * FROM "lockstep".lease_history h WHERE h.name = wanted ORDER BY h.id DESC LIMIT most $$;

CREATE FUNCTION lockstep.lease_force_release(held text, forced_by text, forced_reason text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  mine "lockstep".leases;
  released integer := 0;
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  FOR mine IN SELECT * FROM "lockstep".leases l WHERE l.name = held AND l.token IS NOT NULL ORDER BY l.slot FOR UPDATE LOOP
    UPDATE "lockstep".leases l SET token = NULL, fence = "lockstep".next_fence(), expires_at = clock_timestamp()
     WHERE l.name = mine.name AND l.slot = mine.slot;
    INSERT INTO "lockstep".lease_history
      (name, slot, fence, holder, metadata, acquired_at, ended_at, ending, ended_by, reason)
    VALUES (mine.name, mine.slot, mine.fence, mine.holder, mine.metadata, mine.acquired_at, clock_timestamp(),
            'forced', forced_by, forced_reason);
    released := released + 1;
  END LOOP;
  PERFORM FROM "lockstep".leases l WHERE l.name = held AND l.token IS NULL ORDER BY l.slot FOR UPDATE;
  PERFORM "lockstep".lease_wake(held);
  RETURN released;
END
$$;

CREATE FUNCTION lockstep.lease_guard(held text, my_token uuid, my_fence bigint, bound_ms double precision) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  bound CONSTANT text := ceil(bound_ms)::bigint::text;
BEGIN
  PERFORM FROM "lockstep".leases l
    WHERE l.name = held AND l.token = my_token AND l.fence = my_fence
      AND (l.expires_at > clock_timestamp() OR current_setting('transaction_isolation') <> 'read committed')
      FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF NOT (extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000 BETWEEN 1 AND bound_ms) THEN
    PERFORM set_config('idle_in_transaction_session_timeout', bound, true);
  END IF;
  IF current_setting('server_version_num')::integer >= 170000 THEN
    IF NOT (extract(epoch FROM current_setting('transaction_timeout')::interval) * 1000 BETWEEN 1 AND bound_ms) THEN
      -- The server sets its clock only if it is not running: where a longer one runs, it is stopped first.
      PERFORM set_config('transaction_timeout', '0', true);
      PERFORM set_config('transaction_timeout', bound, true);
    END IF;
  END IF;
  RETURN true;
END
$$;

CREATE FUNCTION lockstep.lease_holders(wanted text, exactly boolean, most integer) RETURNS TABLE(name text, slot integer, permits integer, fence bigint, holder text, metadata jsonb, acquired_at timestamp with time zone, expires_at timestamp with time zone)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  -- Two statements: for one name the index is used.
  IF exactly THEN
    RETURN QUERY SELECT l.name, l.slot, l.permits, l.fence, l.holder, l.metadata, l.acquired_at, l.expires_at FROM "lockstep".leases l
     WHERE l.name = wanted AND l.token IS NOT NULL AND l.expires_at > clock_timestamp() ORDER BY l.slot LIMIT most;
  ELSE
    RETURN QUERY SELECT l.name, l.slot, l.permits, l.fence, l.holder, l.metadata, l.acquired_at, l.expires_at FROM "lockstep".leases l
     WHERE starts_with(l.name, wanted) AND l.token IS NOT NULL AND l.expires_at > clock_timestamp() ORDER BY l.name, l.slot LIMIT most;
  END IF;
END
$$;

CREATE FUNCTION lockstep.lease_leave(tokens uuid[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  WITH gone AS (DELETE FROM "lockstep".lease_waiters w WHERE w.token = ANY(tokens) RETURNING w.name)
  SELECT "lockstep".lease_wake(names.name) FROM (SELECT DISTINCT gone.name FROM gone) AS names
$$;

CREATE FUNCTION lockstep.lease_look(tokens uuid[], permits integer[], keep_ms integer) RETURNS TABLE(waiting_token uuid, ready boolean, left_ms double precision)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  UPDATE "lockstep".lease_waiters w SET expires_at = clock_timestamp() + make_interval(secs => keep_ms / 1000.0)
   WHERE w.token = ANY(tokens);
  RETURN QUERY
  SELECT w.token,
         (SELECT count(*) FROM "lockstep".leases l
           WHERE l.name = w.name AND l.token IS NOT NULL AND l.expires_at > clock_timestamp())
       + (SELECT count(*) FROM (SELECT FROM "lockstep".lease_waiters a
                                 WHERE a.name = w.name AND a.place < w.place AND a.expires_at > clock_timestamp()
                                 LIMIT given.permits) AS waiting) < given.permits,
         (SELECT (extract(epoch FROM min(l.expires_at) - clock_timestamp()) * 1000)::double precision
            FROM "lockstep".leases l
           WHERE l.name = w.name AND l.token IS NOT NULL AND l.expires_at > clock_timestamp())
    FROM unnest(tokens, permits) AS given(token, permits) JOIN "lockstep".lease_waiters w ON w.token = given.token;
END
$$;

CREATE FUNCTION lockstep.lease_queue(wanted text, exactly boolean, most integer) RETURNS TABLE(name text, holder text, since timestamp with time zone)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  IF exactly THEN
    RETURN QUERY SELECT w.name, w.holder, w.since FROM "lockstep".lease_waiters w
     WHERE w.name = wanted AND w.expires_at > clock_timestamp() ORDER BY w.place LIMIT most;
  ELSE
    RETURN QUERY SELECT w.name, w.holder, w.since FROM "lockstep".lease_waiters w
     WHERE starts_with(w.name, wanted) AND w.expires_at > clock_timestamp() ORDER BY w.name, w.place LIMIT most;
  END IF;
END
$$;

CREATE FUNCTION lockstep.lease_release(held text, my_token uuid) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  mine "lockstep".leases;
BEGIN
  SELECT * INTO mine FROM "lockstep".leases l WHERE l.name = held AND l.token = my_token FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE "lockstep".leases l SET token = NULL, expires_at = clock_timestamp() WHERE l.name = mine.name AND l.slot = mine.slot;
  IF mine.remembered THEN
    INSERT INTO "lockstep".lease_history (name, slot, fence, holder, metadata, acquired_at, ended_at, ending)
    VALUES (mine.name, mine.slot, mine.fence, mine.holder, mine.metadata, mine.acquired_at,
            least(mine.expires_at, clock_timestamp()),
            CASE WHEN mine.expires_at > clock_timestamp() THEN 'released' ELSE 'expired' END);
  END IF;
  PERFORM "lockstep".lease_wake(held);
  RETURN mine.expires_at > clock_timestamp();
END
$$;

CREATE FUNCTION lockstep.lease_renew(names text[], tokens uuid[], fences bigint[], ttls_ms integer[]) RETURNS TABLE(renewed_token uuid, outcome text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  -- A renewal that a crash could undo would leave a holder that trusts what the row does not say.
  PERFORM set_config('synchronous_commit', 'on', true);
  RETURN QUERY
  WITH given AS (
    SELECT * FROM unnest(names, tokens, fences, ttls_ms) AS g(name, token, fence, ttl_ms)
  ), mine AS (
    SELECT l.name, l.slot, given.ttl_ms
      FROM given JOIN "lockstep".leases l ON l.name = given.name AND l.token = given.token AND l.fence = given.fence
     WHERE l.expires_at > clock_timestamp()
       FOR NO KEY UPDATE OF l SKIP LOCKED
  ), renewed AS (
    UPDATE "lockstep".leases l SET expires_at = clock_timestamp() + make_interval(secs => mine.ttl_ms / 1000.0)
      FROM mine WHERE l.name = mine.name AND l.slot = mine.slot
    RETURNING l.token
  )
  SELECT given.token,
         CASE WHEN renewed.token IS NOT NULL THEN 'renewed'
              WHEN EXISTS (SELECT FROM "lockstep".leases l
                            WHERE l.name = given.name AND l.token = given.token AND l.fence = given.fence
                              AND l.expires_at > clock_timestamp()) THEN 'unknown'
              ELSE 'lost' END
    FROM given LEFT JOIN renewed ON renewed.token = given.token;
END
$$;

CREATE FUNCTION lockstep.lease_take(wanted text, my_token uuid, ttl_ms integer, wanted_permits integer, my_holder text, my_metadata jsonb, my_place bigint, my_remembered boolean, OUT verdict text, OUT granted_slot integer, OUT granted_fence bigint, OUT other_holder text, OUT other_since timestamp with time zone, OUT other_left_ms double precision, OUT other_permits integer) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  ttl interval := make_interval(secs => ttl_ms / 1000.0);
  mine "lockstep".leases;
  busy integer;
  ahead integer;
  others integer;
  lockable integer;
  several boolean := wanted_permits > 1;
  alone boolean := false;
BEGIN
  FOR look IN 1 .. 4 LOOP
    SELECT count(*) FILTER (WHERE l.token IS NOT NULL AND l.expires_at > clock_timestamp()),
           max(l.permits) FILTER (WHERE l.token IS NOT NULL AND l.expires_at > clock_timestamp() AND l.permits <> wanted_permits),
           count(*) FILTER (WHERE l.permits <> wanted_permits)
      INTO busy, other_permits, others
      FROM "lockstep".leases l WHERE l.name = wanted;
    IF busy > 0 THEN
      -- An earlier try of ours whose answer was lost.
      IF EXISTS (SELECT FROM "lockstep".leases l WHERE l.name = wanted AND l.token = my_token) THEN
        PERFORM set_config('synchronous_commit', 'on', true);
        -- Its time begins anew: the holder counts from this question.
        UPDATE "lockstep".leases l SET expires_at = clock_timestamp() + ttl
         WHERE l.name = wanted AND l.token = my_token AND l.expires_at > clock_timestamp()
         RETURNING l.slot, l.fence INTO granted_slot, granted_fence;
        EXIT WHEN FOUND;
      END IF;
      IF other_permits IS NOT NULL THEN
        verdict := 'permits';
        RETURN;
      END IF;
    END IF;
    SELECT count(*) INTO ahead FROM (
      SELECT FROM "lockstep".lease_waiters w
       WHERE w.name = wanted AND w.expires_at > clock_timestamp() AND w.place < COALESCE(my_place, 9223372036854775807)
       LIMIT wanted_permits) AS waiting;
    EXIT WHEN busy + ahead >= wanted_permits;

    -- Where there are several rows, what is being taken just now is not seen: one at a time, and looked at anew.
    several := several OR others > 0;
    IF several AND NOT alone THEN
      PERFORM pg_advisory_xact_lock("lockstep".lock_id('lease', wanted));
      alone := true;
      CONTINUE;
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);
    IF others > 0 THEN
      -- All of them are free or over by now. One that is locked is busy: this caller does not know its slot, or must not share it.
      SELECT count(*) INTO lockable FROM (
        SELECT FROM "lockstep".leases l
         WHERE l.name = wanted AND l.permits <> wanted_permits AND (l.token IS NULL OR l.expires_at <= clock_timestamp())
           FOR UPDATE SKIP LOCKED) AS locked;
      IF lockable < others THEN
        -- Unless it was only being cleaned away.
        PERFORM pg_advisory_xact_lock_shared("lockstep".lock_id('leases', 'CleanUp:all'));
        CONTINUE;
      END IF;
      -- Nobody has the old number any more. What it leaves would have to be looked at by everybody who comes.
      INSERT INTO "lockstep".lease_history (name, slot, fence, holder, metadata, acquired_at, ended_at, ending)
      SELECT l.name, l.slot, l.fence, l.holder, l.metadata, l.acquired_at, l.expires_at, 'expired'
        FROM "lockstep".leases l
       WHERE l.name = wanted AND l.slot >= wanted_permits AND l.token IS NOT NULL AND l.remembered;
      DELETE FROM "lockstep".leases l WHERE l.name = wanted AND l.slot >= wanted_permits;
      UPDATE "lockstep".leases l SET permits = wanted_permits WHERE l.name = wanted AND l.permits <> wanted_permits;
    END IF;
    -- Locked means held: by whoever takes it just now, or by an open transaction of the last holder.
    SELECT * INTO mine FROM "lockstep".leases l
     WHERE l.name = wanted AND l.slot < wanted_permits AND (l.token IS NULL OR l.expires_at <= clock_timestamp())
     ORDER BY l.slot LIMIT 1
       FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      -- Taken and given back with another number since it was counted: there may be more rows of that.
      CONTINUE WHEN mine.permits <> wanted_permits;
      IF mine.token IS NOT NULL AND mine.remembered THEN
        INSERT INTO "lockstep".lease_history (name, slot, fence, holder, metadata, acquired_at, ended_at, ending)
        VALUES (mine.name, mine.slot, mine.fence, mine.holder, mine.metadata, mine.acquired_at, mine.expires_at, 'expired');
      END IF;
      UPDATE "lockstep".leases l
         SET token = my_token, fence = "lockstep".next_fence(), permits = wanted_permits, holder = my_holder,
             metadata = my_metadata, acquired_at = clock_timestamp(), expires_at = clock_timestamp() + ttl,
             remembered = my_remembered
       WHERE l.name = mine.name AND l.slot = mine.slot
       RETURNING l.slot, l.fence INTO granted_slot, granted_fence;
    ELSE
      INSERT INTO "lockstep".leases (name, slot, permits, fence, token, holder, metadata, acquired_at, expires_at, remembered)
      SELECT wanted, s, wanted_permits, "lockstep".next_fence(), my_token, my_holder, my_metadata, clock_timestamp(),
             clock_timestamp() + ttl, my_remembered
        FROM generate_series(0, wanted_permits - 1) AS s
       WHERE NOT EXISTS (SELECT FROM "lockstep".leases l WHERE l.name = wanted AND l.slot = s)
       ORDER BY s LIMIT 1
          ON CONFLICT DO NOTHING
       RETURNING slot, fence INTO granted_slot, granted_fence;
      IF granted_fence IS NULL THEN
        -- A row that is being cleaned away is locked, and nobody has it: it is gone in a moment.
        PERFORM pg_advisory_xact_lock_shared("lockstep".lock_id('leases', 'CleanUp:all'));
      END IF;
    END IF;
    EXIT WHEN granted_fence IS NOT NULL;
  END LOOP;

  IF granted_fence IS NOT NULL THEN
    IF my_place IS NOT NULL THEN
      DELETE FROM "lockstep".lease_waiters w WHERE w.token = my_token;
      -- There may be something for the next one as well.
      IF several THEN
        PERFORM "lockstep".lease_wake(wanted);
      END IF;
    END IF;
    verdict := 'granted';
    RETURN;
  END IF;
  verdict := 'held';
  SELECT l.holder, l.acquired_at, greatest(0, extract(epoch FROM l.expires_at - clock_timestamp()) * 1000)
    INTO other_holder, other_since, other_left_ms
    FROM "lockstep".leases l WHERE l.name = wanted AND l.token IS NOT NULL
   ORDER BY l.expires_at LIMIT 1;
END
$$;

CREATE FUNCTION lockstep.lease_wait(names text[], tokens uuid[], holders text[], keep_ms integer) RETURNS TABLE(waiting_token uuid, waiting_place bigint)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  INSERT INTO "lockstep".lease_waiters AS w (name, token, holder, expires_at)
  SELECT g.name, g.token, g.holder, clock_timestamp() + make_interval(secs => keep_ms / 1000.0)
    FROM unnest(names, tokens, holders) WITH ORDINALITY AS g(name, token, holder, number)
   ORDER BY g.number
      ON CONFLICT (token) DO UPDATE SET expires_at = excluded.expires_at
  RETURNING w.token, w.place
$$;

CREATE FUNCTION lockstep.lease_wake(freed text) RETURNS void
    LANGUAGE sql
    SET jit TO 'off'
    AS $$
  SELECT pg_notify('lockstep_' || "lockstep".lock_id('listen', 'Leases:all'), w.place::text)
    FROM "lockstep".lease_waiters w
   WHERE w.name = freed AND w.expires_at > clock_timestamp()
   ORDER BY w.place LIMIT 1
$$;

CREATE FUNCTION lockstep.lock_id(domain text, key text) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
  SELECT ('x' || encode(substr(sha256(
    convert_to('lockstep', 'UTF8') || decode('00', 'hex') || convert_to(domain, 'UTF8') || decode('00', 'hex') || convert_to(key, 'UTF8')
  ), 1, 8), 'hex'))::bit(64)::bigint
$$;

CREATE FUNCTION lockstep.lock_names_of(ids bigint[]) RETURNS TABLE(id bigint, key text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  RETURN QUERY SELECT n.id, n.key FROM "lockstep".lock_names n WHERE n.id = ANY(ids);
END
$$;

CREATE FUNCTION lockstep.lock_names_record(names json) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  INSERT INTO "lockstep".lock_names AS known (id, key)
  SELECT given.id, given.key
    FROM (SELECT (name ->> 0)::bigint AS id, name ->> 1 AS key FROM json_array_elements(names) AS n(name)) AS given
   WHERE given.id = "lockstep".lock_id('lock', given.key)
   ORDER BY given.id
      ON CONFLICT (id) DO UPDATE SET key = excluded.key, seen_at = excluded.seen_at
   WHERE known.seen_at < excluded.seen_at - interval '4 minutes'
$$;

CREATE FUNCTION lockstep.lock_names_trim(keep integer, most integer) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  DELETE FROM "lockstep".lock_names WHERE id IN (
    SELECT n.id FROM "lockstep".lock_names n
     WHERE n.seen_at < (SELECT s.seen_at FROM "lockstep".lock_names s ORDER BY s.seen_at DESC OFFSET greatest(keep, 1) - 1 LIMIT 1)
     ORDER BY n.seen_at LIMIT most FOR UPDATE SKIP LOCKED)
$$;

CREATE FUNCTION lockstep.lock_row_try(my_id bigint, shared boolean) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  IF shared THEN
    RETURN (SELECT r.id FROM "lockstep".lock_rows r WHERE r.id = my_id FOR SHARE SKIP LOCKED);
  END IF;
  RETURN (SELECT r.id FROM "lockstep".lock_rows r WHERE r.id = my_id FOR UPDATE SKIP LOCKED);
END
$$;

CREATE FUNCTION lockstep.lock_row_wait(my_id bigint, shared boolean) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  IF shared THEN
    INSERT INTO "lockstep".lock_rows (id) VALUES (my_id) ON CONFLICT (id) DO NOTHING;
    PERFORM FROM "lockstep".lock_rows r WHERE r.id = my_id FOR SHARE;
  ELSE
    INSERT INTO "lockstep".lock_rows (id) VALUES (my_id) ON CONFLICT (id) DO UPDATE SET id = excluded.id WHERE false;
  END IF;
END
$$;

CREATE FUNCTION lockstep.lock_rows_existing(ids bigint[]) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$ SELECT count(*) FROM "lockstep".lock_rows r WHERE r.id = ANY(ids) $$;

CREATE FUNCTION lockstep.lock_trials_forget(my_route text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$ DELETE FROM "lockstep".lock_trials t WHERE t.route = my_route $$;

CREATE FUNCTION lockstep.lock_trials_known(my_system bigint, my_route text, my_strategy text, least_version integer) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  SELECT string_agg(CASE WHEN t.pooled THEN 'pooled ' ELSE 'direct ' END || t.connections, ',') FROM "lockstep".lock_trials t
   WHERE t.system = my_system AND t.route = my_route AND t.strategy = my_strategy AND t.version >= least_version
$$;

CREATE FUNCTION lockstep.lock_trials_remember(my_route text, my_strategy text, was_pooled boolean, my_connections integer, my_version integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  here bigint := (SELECT i.system FROM "lockstep".ensure_incarnation() i);
BEGIN
  INSERT INTO "lockstep".lock_trials AS t (system, route, strategy, pooled, connections, version)
  VALUES (here, my_route, my_strategy, was_pooled, my_connections, my_version)
      ON CONFLICT (system, route, strategy, pooled)
      DO UPDATE SET connections = excluded.connections, version = excluded.version, tried_at = excluded.tried_at
              WHERE t.connections <= excluded.connections OR t.version < excluded.version;
  DELETE FROM "lockstep".lock_trials t
   WHERE t.system <> here
      OR t.tried_at < (SELECT k.tried_at FROM "lockstep".lock_trials k ORDER BY k.tried_at DESC OFFSET 1000 LIMIT 1);
END
$$;

CREATE FUNCTION lockstep.next_fence() RETURNS bigint
    LANGUAGE sql
    AS $$
  SELECT ("lockstep".ensure_incarnation()).epoch * 1099511627776
       + nextval(format('%I.fences', 'lockstep')::regclass)
$$;

CREATE FUNCTION lockstep.outbox_advance(my_dispatcher text, my_shard smallint, my_fence bigint, my_version bigint, my_life text, new_prev pg_snapshot, new_next pg_snapshot, new_after bigint, new_done boolean, new_seen bigint, waiting jsonb DEFAULT NULL::jsonb) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
BEGIN
  IF "lockstep".outbox_move(my_dispatcher, ARRAY[my_shard], ARRAY[my_fence], ARRAY[my_version], ARRAY[my_life], ARRAY[new_prev], ARRAY[new_next],
                           ARRAY[new_after], ARRAY[new_done], ARRAY[new_seen]) = 0 THEN
    RETURN false;
  END IF;
  IF waiting IS NOT NULL THEN
    -- Before the events are read: an erase of payloads waits for copies that are being made, and they wait for it.
    LOCK TABLE "lockstep".outbox_parked_events IN ROW EXCLUSIVE MODE;
    INSERT INTO "lockstep".outbox_parked (dispatcher, stream, shard, topic, key, state, attempts, reason, next_attempt_at, sent_seq)
    SELECT my_dispatcher, "lockstep".outbox_stream(w.topic, w.key), my_shard, w.topic, w.key, COALESCE(w.state, 'parked'),
           COALESCE(w.attempts, 0), w.reason, clock_timestamp() + make_interval(secs => COALESCE(w.delay_ms, 0) / 1000.0),
           (SELECT min(s.seq) - 1 FROM unnest(w.seqs) AS s(seq))
      FROM jsonb_to_recordset(waiting)
             AS w(topic text, key text, seqs bigint[], state text, attempts integer, reason text, delay_ms float8)
        ON CONFLICT DO NOTHING;
    INSERT INTO "lockstep".outbox_parked_events
    SELECT my_dispatcher, e.stream, e.seq, e.id, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers,
           CASE WHEN e.erased THEN 'erased' END
      FROM jsonb_to_recordset(waiting) AS w(topic text, key text, seqs bigint[])
      CROSS JOIN LATERAL unnest(w.seqs) AS s(seq)
      JOIN "lockstep".outbox_events e ON e.stream = "lockstep".outbox_stream(w.topic, w.key) AND e.seq = s.seq
        ON CONFLICT DO NOTHING;
  END IF;
  RETURN true;
END
$$;

CREATE FUNCTION lockstep.outbox_append(topic text, key text, payload json, bytes bytea, headers json, known bigint DEFAULT NULL::bigint, id uuid DEFAULT NULL::uuid) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
  -- Before the id is given out, and before the slot is read.
  me xid8 := pg_current_xact_id();
  digest bytea := sha256(
    convert_to('lockstep', 'UTF8') || decode('006f7574626f7800', 'hex') || convert_to(topic, 'UTF8') || decode('00', 'hex') || convert_to(key, 'UTF8')
  );
  mine uuid := encode(substr(digest, 1, 16), 'hex')::uuid;
  my_bucket smallint := (get_byte(digest, 14) & 3) << 8 | get_byte(digest, 15);
  my_id bigint;
  my_seq bigint := known;
  last_xid xid8;
  streams integer;
BEGIN
  -- One cheap condition that every usual event passes: an IF more costs as much as this whole one. What does not pass is checked exactly.
  -- 256: pg_column_size() is the compressed size of a value from a table, and PostgreSQL compresses to no less than 1/255.
  IF COALESCE(octet_length(topic), 0) NOT BETWEEN 1 AND 1000 OR COALESCE(octet_length(key), 0) NOT BETWEEN 1 AND 1000
     OR (known IS NULL AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted'))
     OR (payload IS NULL) = (bytes IS NULL)
     OR NOT "lockstep".outbox_plain_headers(headers::text)
     OR (COALESCE(pg_column_size(payload), 0) + COALESCE(pg_column_size(bytes), 0) + COALESCE(pg_column_size(headers), 0))::bigint * 256
        > "lockstep".outbox_max_event_bytes() THEN
    PERFORM "lockstep".outbox_check_names(topic, key);
    IF known IS NULL AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
      PERFORM "lockstep".outbox_refuse_isolation();
    END IF;
    IF headers IS NOT NULL THEN PERFORM "lockstep".outbox_check_headers(topic, key, headers); END IF;
    PERFORM "lockstep".outbox_refuse_payload(topic, key, octet_length(payload::text), octet_length(bytes), octet_length(headers::text));
  END IF;
  IF known IS NULL AND outbox_append.id IS NULL THEN
    streams := COALESCE(NULLIF(current_setting('lockstep.outbox_streams', true), ''), '0')::integer;
  END IF;
  IF streams >= 100 THEN
    PERFORM pg_advisory_xact_lock(('x' || encode(substr(sha256(
    convert_to('lockstep', 'UTF8') || decode('006f7574626f782d67726f757000', 'hex')
  ), 1, 8), 'hex'))::bit(64)::bigint # (my_bucket >> 4)::bigint);
  -- Takes the group's lock, then the stream's: neither is ever null.
  ELSIF pg_advisory_xact_lock_shared(('x' || encode(substr(sha256(
    convert_to('lockstep', 'UTF8') || decode('006f7574626f782d67726f757000', 'hex')
  ), 1, 8), 'hex'))::bit(64)::bigint # (my_bucket >> 4)::bigint) IS NULL
     OR pg_advisory_xact_lock(('x' || encode(substr(digest, 1, 8), 'hex'))::bit(64)::bigint) IS NULL THEN
    RETURN NULL;
  END IF;
  -- Null as long as the first slot has never been left.
  CASE COALESCE(pg_sequence_last_value('"lockstep".outbox_slot'::regclass), 0)
  WHEN 0 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_0 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_0 (slot, id, xid, bucket, bucket_group, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (0, my_id, me, my_bucket, my_bucket >> 4, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 1 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_1 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_1 (slot, id, xid, bucket, bucket_group, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (1, my_id, me, my_bucket, my_bucket >> 4, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 2 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_2 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_2 (slot, id, xid, bucket, bucket_group, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (2, my_id, me, my_bucket, my_bucket >> 4, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 3 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_3 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_3 (slot, id, xid, bucket, bucket_group, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (3, my_id, me, my_bucket, my_bucket >> 4, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 4 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_4 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_4 (slot, id, xid, bucket, bucket_group, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (4, my_id, me, my_bucket, my_bucket >> 4, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 5 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_5 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_5 (slot, id, xid, bucket, bucket_group, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (5, my_id, me, my_bucket, my_bucket >> 4, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 6 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_6 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_6 (slot, id, xid, bucket, bucket_group, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (6, my_id, me, my_bucket, my_bucket >> 4, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 7 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_7 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_7 (slot, id, xid, bucket, bucket_group, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (7, my_id, me, my_bucket, my_bucket >> 4, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  END CASE;
  IF my_id % 1000 = 0 THEN PERFORM "lockstep".outbox_tick(my_id); END IF;
  IF streams < 100 AND last_xid IS DISTINCT FROM me THEN
    PERFORM set_config('lockstep.outbox_streams', (streams + 1)::text, true);
  END IF;
  RETURN my_seq;
END
$$;

CREATE FUNCTION lockstep.outbox_append_many(topics text[], keys text[], payloads text[], bytes bytea[], headers text[], locked boolean DEFAULT false, known bigint[] DEFAULT NULL::bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  me xid8 := pg_current_xact_id();
  all_streams uuid[] := ARRAY(SELECT "lockstep".outbox_stream(g.topic, g.key) FROM unnest(topics, keys) WITH ORDINALITY AS g(topic, key, n) ORDER BY g.n);
  streams uuid[];
  lasts bigint[];
  my_slot smallint;
  first_id bigint;
  last_id bigint;
  added integer;
BEGIN
  PERFORM "lockstep".outbox_check_names(g.topic, g.key) FROM (SELECT DISTINCT * FROM unnest(topics, keys)) AS g(topic, key);
  PERFORM "lockstep".outbox_check_headers(g.topic, g.key, g.headers::json)
    FROM unnest(topics, keys, headers) AS g(topic, key, headers) WHERE NOT "lockstep".outbox_plain_headers(g.headers);
  PERFORM "lockstep".outbox_refuse_payload(g.topic, g.key, octet_length(g.payload), octet_length(g.bytes), octet_length(g.headers))
     FROM unnest(topics, keys, payloads, bytes, headers) AS g(topic, key, payload, bytes, headers)
    WHERE (g.payload IS NULL) = (g.bytes IS NULL)
       OR COALESCE(octet_length(g.bytes), octet_length(g.payload))::bigint + COALESCE(octet_length(g.headers), 0)
          > "lockstep".outbox_max_event_bytes();
  streams := ARRAY(SELECT DISTINCT s FROM unnest(all_streams) AS s);
  IF NOT locked THEN
    PERFORM "lockstep".outbox_lock_streams(streams);
  END IF;
  SELECT s.last_value INTO my_slot FROM "lockstep".outbox_slot s;
  IF known IS NULL THEN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
      PERFORM "lockstep".outbox_refuse_isolation();
    END IF;
    lasts := "lockstep".outbox_last(streams);
  ELSE
    lasts := ARRAY(SELECT (SELECT min(k.last) FROM unnest(all_streams, known) AS k(stream, last) WHERE k.stream = s.stream)
                     FROM unnest(streams) WITH ORDINALITY AS s(stream, n) ORDER BY s.n);
  END IF;
  WITH appended AS (
    INSERT INTO "lockstep".outbox_events (slot, xid, bucket, bucket_group, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    SELECT my_slot, me, g.bucket, "lockstep".outbox_group(g.bucket), g.stream,
           l.last + row_number() OVER (PARTITION BY g.stream ORDER BY g.n), gen_random_uuid(), clock_timestamp(),
           g.topic, g.key, g.payload::json, g.bytes, g.headers::json
      FROM (SELECT u.*, "lockstep".outbox_bucket(u.stream) AS bucket
              FROM unnest(all_streams, topics, keys, payloads, bytes, headers) WITH ORDINALITY
                     AS u(stream, topic, key, payload, bytes, headers, n) OFFSET 0) AS g
      JOIN unnest(streams, lasts) AS l(stream, last) ON l.stream = g.stream
     ORDER BY g.n
    RETURNING id)
  SELECT min(id), max(id), count(*) INTO first_id, last_id, added FROM appended;
  IF last_id / 1000 > (first_id - 1) / 1000 THEN
    PERFORM "lockstep".outbox_tick(last_id);
  END IF;
  RETURN added;
END
$$;

CREATE FUNCTION lockstep.outbox_bucket(stream uuid) RETURNS smallint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT ((get_byte(uuid_send(stream), 14) & 3) << 8 | get_byte(uuid_send(stream), 15))::smallint $$;

CREATE FUNCTION lockstep.outbox_check_headers(topic text, key text, headers json) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
  wrong text;
BEGIN
  IF json_typeof(headers) = 'object' THEN
    SELECT format('%s is of type %s', to_json(h.key), json_typeof(h.value)) INTO wrong
      FROM json_each(headers) AS h WHERE json_typeof(h.value) <> 'string' LIMIT 1;
  ELSE
    wrong := 'they are of type ' || json_typeof(headers);
  END IF;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'the headers of an event of %/% are not an object of text: %', topic, key, left(wrong, 200)
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Pass an object whose values are text, such as {"content-language": "en"}, or an SQL NULL for none.';
  END IF;
END
$$;

CREATE FUNCTION lockstep.outbox_check_names(topic text, key text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
BEGIN
  IF COALESCE(octet_length(topic), 0) NOT BETWEEN 1 AND 1000 OR COALESCE(octet_length(key), 0) NOT BETWEEN 1 AND 1000 THEN
    RAISE EXCEPTION 'an event needs a topic and a key of 1 to 1000 bytes' USING ERRCODE = 'invalid_parameter_value';
  END IF;
END
$$;

CREATE FUNCTION lockstep.outbox_dispatcher_names() RETURNS SETOF text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$ SELECT d.name FROM "lockstep".outbox_dispatchers d ORDER BY d.name $$;

CREATE FUNCTION lockstep.outbox_drop(min_age interval) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  s "lockstep".outbox_segments;
  age interval := COALESCE(min_age, "lockstep".outbox_retention());
  passed xid8 := "lockstep".outbox_passed();
  dropped integer := 0;
BEGIN
  -- One at a time: a second one, waiting for a slot's lock, would empty what has been written there since the first.
  IF passed IS NULL OR NOT pg_try_advisory_xact_lock("lockstep".lock_id('outbox-retain', 'Outbox:rotate')) THEN
    RETURN 0;
  END IF;
  PERFORM set_config('lock_timeout', '300ms', true);
  BEGIN
    -- A tick stands for a thousand events. What is left over goes with the next round.
    DELETE FROM "lockstep".outbox_ticks t
     WHERE t.ctid = ANY(ARRAY(SELECT o.ctid FROM "lockstep".outbox_ticks o WHERE o.newest < passed LIMIT 10000));
  EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
  END;
  FOR s IN SELECT * FROM "lockstep".outbox_segments g ORDER BY g.number LOOP
    EXIT WHEN NOT COALESCE(s.sealed_xid <= passed AND s.left_at <= clock_timestamp() - age
                           AND s.kept_at <= clock_timestamp() - least(age, interval '1 minute'), false);
    BEGIN
      EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', format('%I.outbox_events_' || s.slot, 'lockstep')::regclass);
      -- A dispatcher that registers now waits until this is over; one that has registered counts.
      LOCK TABLE "lockstep".outbox_dispatchers IN SHARE MODE;
    EXCEPTION WHEN lock_not_available THEN
      EXIT;
    END;
    -- Somebody new may have begun to read it meanwhile, or wants it for longer.
    passed := "lockstep".outbox_passed();
    age := COALESCE(min_age, "lockstep".outbox_retention());
    EXIT WHEN NOT COALESCE(s.sealed_xid <= passed AND s.left_at <= clock_timestamp() - age, false);
    -- For a replay of these events: see outbox_emptied().
    UPDATE "lockstep".outbox_home h SET emptied_id = s.last_id WHERE h.emptied_id < s.last_id;
    EXECUTE format('TRUNCATE %s', format('%I.outbox_events_' || s.slot, 'lockstep')::regclass);
    DELETE FROM "lockstep".outbox_segments g WHERE g.slot = s.slot;
    dropped := dropped + 1;
  END LOOP;
  RETURN dropped;
END
$$;

CREATE FUNCTION lockstep.outbox_emptied(my_topic text, my_key text, next_seq bigint, OUT emptied_id bigint, OUT gone boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
  mine uuid := "lockstep".outbox_stream(my_topic, my_key);
  last_seq bigint;
BEGIN
  -- Waits for a drop that is going on, and keeps the next one away until the read is over.
  LOCK TABLE "lockstep".outbox_events IN ACCESS SHARE MODE;
  SELECT h.emptied_id INTO emptied_id FROM "lockstep".outbox_home h;
  IF mine IS NOT NULL THEN
    -- First the last number: an event up to that which is not found afterwards is gone.
    last_seq := ("lockstep".outbox_last(ARRAY[mine]))[1];
    gone := next_seq <= last_seq
            AND NOT EXISTS (SELECT FROM "lockstep".outbox_events e WHERE e.stream = mine AND e.seq = next_seq);
  END IF;
END
$$;

CREATE FUNCTION lockstep.outbox_erase(my_topic text, my_key text, my_reason text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  mine uuid := "lockstep".outbox_stream(my_topic, my_key);
  erased_now integer;
  copies integer;
BEGIN
  -- In the order of outbox_halt(), which has the events when it comes to the copies.
  LOCK TABLE "lockstep".outbox_events IN ROW EXCLUSIVE MODE;
  LOCK TABLE "lockstep".outbox_parked_events IN SHARE ROW EXCLUSIVE MODE;
  UPDATE "lockstep".outbox_events e SET payload = NULL, bytes = NULL, headers = NULL, erased = true
   WHERE e.stream = mine AND NOT e.erased;
  GET DIAGNOSTICS erased_now = ROW_COUNT;
  UPDATE "lockstep".outbox_parked_events e SET payload = NULL, bytes = NULL, headers = NULL, tombstone = COALESCE(e.tombstone, 'erased')
   WHERE e.stream = mine AND (e.payload IS NOT NULL OR e.bytes IS NOT NULL OR e.headers IS NOT NULL);
  GET DIAGNOSTICS copies = ROW_COUNT;
  UPDATE "lockstep".outbox_dead e SET payload = NULL, bytes = NULL, headers = NULL WHERE e.stream = mine;
  INSERT INTO "lockstep".outbox_audit (verb, topic, key, reason) VALUES ('erase', my_topic, my_key, my_reason);
  RETURN greatest(erased_now, copies);
END
$$;

CREATE FUNCTION lockstep.outbox_estimate(slots smallint[], my_group smallint, first_xid xid8, end_xid xid8, after_id bigint, OUT events bigint, OUT exact boolean, OUT oldest timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  few CONSTANT integer := 50;
  upper_xid xid8 := COALESCE(end_xid, '9223372036854775807'::xid8);
  head_low bigint;
  head_high bigint;
  tail_low bigint;
  tail_high bigint;
  tail integer;
BEGIN
  IF first_xid = end_xid THEN
    SELECT count(*), min(f.id), max(f.id), min(f.enqueued_at) INTO events, head_low, head_high, oldest
      FROM (SELECT e.id, e.enqueued_at FROM "lockstep".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = my_group AND e.xid = first_xid AND e.id > after_id
             ORDER BY e.bucket_group, e.xid, e.id LIMIT few) AS f;
  ELSE
    SELECT count(*), min(f.id), max(f.id), min(f.enqueued_at) INTO events, head_low, head_high, oldest
      FROM (SELECT e.id, e.enqueued_at FROM "lockstep".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = my_group AND e.xid >= first_xid AND e.xid < upper_xid AND e.id > after_id
             ORDER BY e.bucket_group, e.xid, e.id LIMIT few) AS f;
  END IF;
  exact := events < few;
  IF exact THEN
    RETURN;
  END IF;
  IF first_xid = end_xid THEN
    SELECT count(*) FILTER (WHERE f.id > head_high), min(f.id), max(f.id) INTO tail, tail_low, tail_high
      FROM (SELECT e.id FROM "lockstep".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = my_group AND e.xid = first_xid AND e.id > after_id
             ORDER BY e.bucket_group DESC, e.xid DESC, e.id DESC LIMIT few) AS f;
  ELSE
    SELECT count(*) FILTER (WHERE f.id > head_high), min(f.id), max(f.id) INTO tail, tail_low, tail_high
      FROM (SELECT e.id FROM "lockstep".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = my_group AND e.xid >= first_xid AND e.xid < upper_xid AND e.id > after_id
             ORDER BY e.bucket_group DESC, e.xid DESC, e.id DESC LIMIT few) AS f;
  END IF;
  exact := tail < few;
  events := events + tail + (greatest(tail_low - head_high - 1, 0)
              * ((few - 1)::float8 / (head_high - head_low) + (few - 1)::float8 / (tail_high - tail_low)) / 2)::bigint;
END
$$;

CREATE FUNCTION lockstep.outbox_flush(OUT life text, OUT place pg_lsn) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  PERFORM set_config('client_min_messages', 'warning', true);
  place := pg_logical_emit_message(true, 'lockstep', '');
  IF current_setting('synchronous_standby_names') = '' THEN
    place := NULL;
  END IF;
  life := (SELECT h.life FROM "lockstep".outbox_here(NULL::text) AS h);
END
$$;

CREATE FUNCTION lockstep.outbox_forget_xids(this_system text) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  PERFORM "lockstep".outbox_halt();
  UPDATE "lockstep".outbox_events e SET xid = '1'::xid8 WHERE e.xid <> '1'::xid8;
  UPDATE "lockstep".outbox_segments s SET sealed_xid = pg_current_xact_id() WHERE s.sealed_xid IS NOT NULL;
  DELETE FROM "lockstep".outbox_ticks;
  -- Numbers can begin at 1 again here.
  UPDATE "lockstep".outbox_parked p SET sent_seq = 0 WHERE p.sent_seq > 0;
  INSERT INTO "lockstep".outbox_home (system) VALUES (this_system) ON CONFLICT (one) DO UPDATE SET system = EXCLUDED.system;
  -- Where segments changed while the dump was made, it knows the new one by the sequence alone.
  INSERT INTO "lockstep".outbox_segments (slot, number, opened_at)
  SELECT o.last_value, (SELECT COALESCE(max(s.number), 0) + 1 FROM "lockstep".outbox_segments s), clock_timestamp()
    FROM "lockstep".outbox_slot o ON CONFLICT DO NOTHING;
  -- A segment is not left before it has events.
  RETURN ARRAY(SELECT s.number FROM "lockstep".outbox_segments s
                WHERE s.left_at IS NOT NULL AND s.kept_at IS NULL
                  AND NOT EXISTS (SELECT FROM "lockstep".outbox_events e WHERE e.slot = s.slot) ORDER BY s.number);
END
$$;

CREATE FUNCTION lockstep.outbox_group(bucket smallint) RETURNS smallint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT bucket >> 4 $$;

CREATE FUNCTION lockstep.outbox_group_lock(bucket_group integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT "lockstep".lock_id('outbox-group', '') # bucket_group::bigint $$;

CREATE FUNCTION lockstep.outbox_halt() RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
  PERFORM pg_advisory_xact_lock("lockstep".lock_id('outbox-retain', 'Outbox:rotate'));
  -- The slots, and not the table above them, which only some of those that write go through, and before their slot.
  LOCK TABLE "lockstep".outbox_home, "lockstep".outbox_dispatchers,
             "lockstep".outbox_events_0, "lockstep".outbox_events_1, "lockstep".outbox_events_2, "lockstep".outbox_events_3,
             "lockstep".outbox_events_4, "lockstep".outbox_events_5, "lockstep".outbox_events_6, "lockstep".outbox_events_7,
             "lockstep".outbox_cursors, "lockstep".outbox_parked, "lockstep".outbox_parked_events IN EXCLUSIVE MODE;
END
$$;

CREATE FUNCTION lockstep.outbox_head(my_dispatcher text, my_topic text, my_key text, max_bytes integer) RETURNS TABLE(seq bigint, uuid uuid, enqueued_at timestamp with time zone, headers json, tombstone text, size bigint, payload text, hex text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  RETURN QUERY
  SELECT e.seq, e.uuid, e.enqueued_at, CASE WHEN s.bytes <= max_bytes THEN e.headers END, e.tombstone, s.bytes,
         CASE WHEN s.bytes <= max_bytes THEN e.payload::text END, CASE WHEN s.bytes <= max_bytes THEN encode(e.bytes, 'hex') END
    FROM (SELECT q.*, "lockstep".outbox_stored_bytes(q.payload, q.bytes, q.headers) AS stored FROM "lockstep".outbox_parked_events q
           WHERE q.dispatcher = my_dispatcher AND q.stream = "lockstep".outbox_stream(my_topic, my_key)
           ORDER BY q.seq LIMIT 1) AS e
    CROSS JOIN LATERAL (
      SELECT CASE WHEN e.stored > max_bytes THEN e.stored
                  ELSE coalesce(octet_length(e.bytes), octet_length(e.payload::text))::bigint
                       + coalesce(octet_length(e.headers::text), 0)
             END AS bytes
    ) AS s;
END
$$;

CREATE FUNCTION lockstep.outbox_here(my_dispatcher text, OUT life text, OUT elsewhere boolean) RETURNS record
    LANGUAGE plpgsql STABLE
    SET jit TO 'off'
    AS $$
DECLARE
  this_system bigint := (SELECT s.system_identifier FROM pg_control_system() AS s);
  this_database oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
BEGIN
  SELECT (SELECT i.value::text FROM "lockstep".incarnation i WHERE i.system = this_system AND i.database = this_database),
         NOT EXISTS (SELECT FROM "lockstep".outbox_home h WHERE h.system = this_system::text)
         OR EXISTS (SELECT FROM "lockstep".outbox_dispatchers d
                     WHERE d.name = my_dispatcher AND (d.system <> this_system::text OR d.database <> this_database::text))
    INTO life, elsewhere;
END
$$;

CREATE FUNCTION lockstep.outbox_keep(min_age interval, OUT readied integer, OUT more boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
  streams_at_once CONSTANT integer := 200;
  age interval := COALESCE(min_age, "lockstep".outbox_retention());
  passed xid8 := "lockstep".outbox_passed();
  timeout interval := current_setting('statement_timeout')::interval;
  until timestamptz := clock_timestamp() + CASE WHEN timeout > '0' THEN least(timeout / 4, interval '0.1 s') ELSE interval '0.1 s' END;
  s "lockstep".outbox_segments;
  found_streams integer;
  at uuid;
  top bigint;
BEGIN
  readied := 0;
  more := false;
  IF passed IS NULL OR age IS NULL OR NOT pg_try_advisory_xact_lock("lockstep".lock_id('outbox-retain', 'Outbox:rotate')) THEN
    RETURN;
  END IF;
  FOR s IN SELECT * FROM "lockstep".outbox_segments g ORDER BY g.number LOOP
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
      $walk$, 'lockstep', s.slot) INTO found_streams, at, top USING COALESCE(s.kept_stream, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), streams_at_once;
      s.kept_stream := COALESCE(at, s.kept_stream);
      s.last_id := greatest(s.last_id, top);
      EXIT WHEN found_streams < streams_at_once;
      more := clock_timestamp() >= until;
      EXIT WHEN more;
    END LOOP;
    -- From the last moment on: it may have taken long.
    UPDATE "lockstep".outbox_segments g
       SET kept_stream = s.kept_stream, last_id = s.last_id, kept_at = CASE WHEN NOT more THEN clock_timestamp() END
     WHERE g.slot = s.slot;
    EXIT WHEN more;
    readied := readied + 1;
    more := clock_timestamp() >= until;
    EXIT WHEN more;
  END LOOP;
END
$_$;

CREATE FUNCTION lockstep.outbox_last(streams uuid[]) RETURNS bigint[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
  current_slot smallint := (SELECT last_value FROM "lockstep".outbox_slot);
  lasts bigint[];
BEGIN
  lasts := ARRAY(
    SELECT (SELECT e.seq FROM "lockstep".outbox_events e WHERE e.slot = current_slot AND e.stream = g.stream ORDER BY e.seq DESC LIMIT 1)
      FROM unnest(streams) WITH ORDINALITY AS g(stream, n) ORDER BY g.n);
  IF array_position(lasts, NULL) IS NOT NULL THEN
    lasts := ARRAY(
      SELECT COALESCE(g.last, (SELECT e.seq FROM "lockstep".outbox_events e WHERE e.stream = g.stream ORDER BY e.seq DESC LIMIT 1))
        FROM unnest(streams, lasts) WITH ORDINALITY AS g(stream, last, n) ORDER BY g.n);
    IF array_position(lasts, NULL) IS NOT NULL THEN
      lasts := ARRAY(
        SELECT COALESCE(g.last, (SELECT q.seq FROM "lockstep".outbox_quiet q WHERE q.stream = g.stream), 0)
          FROM unnest(streams, lasts) WITH ORDINALITY AS g(stream, last, n) ORDER BY g.n);
    END IF;
  END IF;
  RETURN lasts;
END
$$;

CREATE FUNCTION lockstep.outbox_lock(topics text[], keys text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
  PERFORM "lockstep".outbox_lock_streams(ARRAY(SELECT DISTINCT "lockstep".outbox_stream(g.topic, g.key) FROM unnest(topics, keys) AS g(topic, key)));
END
$$;

CREATE FUNCTION lockstep.outbox_lock_streams(streams uuid[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
  many boolean := cardinality(streams) > 100;
  next bigint;
BEGIN
  FOR next IN SELECT "lockstep".outbox_group_lock(g.n::integer)
                FROM (SELECT DISTINCT "lockstep".outbox_group("lockstep".outbox_bucket(s)) AS n FROM unnest(streams) AS s) AS g ORDER BY g.n LOOP
    IF many THEN
      PERFORM pg_advisory_xact_lock(next);
    ELSE
      PERFORM pg_advisory_xact_lock_shared(next);
    END IF;
  END LOOP;
  IF NOT many THEN
    FOR next IN SELECT DISTINCT "lockstep".outbox_stream_lock(s) FROM unnest(streams) AS s ORDER BY 1 LOOP
      PERFORM pg_advisory_xact_lock(next);
    END LOOP;
  END IF;
END
$$;

CREATE FUNCTION lockstep.outbox_max_event_bytes() RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT 1000000::bigint $$;

CREATE FUNCTION lockstep.outbox_move(my_dispatcher text, my_shards smallint[], my_fences bigint[], my_versions bigint[], my_lives text[], new_prevs pg_snapshot[], new_nexts pg_snapshot[], new_afters bigint[], new_dones boolean[], new_seens bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  here record;
  moved smallint[];
BEGIN
  -- Not before it is sent, only that it is sent: what a crash takes back is sent once more.
  PERFORM set_config('synchronous_commit', 'off', true);
  FOR i IN 1 .. cardinality(my_shards) LOOP
    PERFORM pg_advisory_xact_lock_shared("lockstep".outbox_shard_lock(my_dispatcher, my_shards[i]));
  END LOOP;
  SELECT * INTO here FROM "lockstep".outbox_here(my_dispatcher);
  IF here.elsewhere THEN
    RETURN 0;
  END IF;
  WITH inserted AS (
  INSERT INTO "lockstep".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
  SELECT my_dispatcher, m.shard, m.version + 1, m.fence, m.prev, m.next, m.after_id, m.done, m.seen_id
    FROM unnest(my_shards, my_fences, my_versions, my_lives, new_prevs, new_nexts, new_afters, new_dones, new_seens)
      AS m(shard, fence, version, life, prev, next, after_id, done, seen_id)
    CROSS JOIN LATERAL (SELECT o.version, o.fence FROM "lockstep".outbox_cursors o
                         WHERE o.dispatcher = my_dispatcher AND o.shard = m.shard ORDER BY o.version DESC LIMIT 1) AS c
   WHERE c.version = m.version AND c.fence = m.fence AND m.life = here.life
      ON CONFLICT DO NOTHING RETURNING shard)
  SELECT array_agg(i.shard) INTO moved FROM inserted i;
  FOR i IN 1 .. cardinality(my_shards) LOOP
    -- Only behind a cursor that was moved just now: after a crash the one that the caller has read may not be there any more.
    IF my_versions[i] % 100 = 0 AND my_shards[i] = ANY(moved) THEN
      -- Not all that there ever were, but now and then: deleted ones stay in the index while a session holds an old snapshot.
      DELETE FROM "lockstep".outbox_cursors o
       WHERE o.dispatcher = my_dispatcher AND o.shard = my_shards[i] AND o.version < my_versions[i]
         AND o.version >= my_versions[i] - CASE WHEN my_versions[i] % 10000 = 0 THEN my_versions[i] ELSE 300 END;
    END IF;
  END LOOP;
  RETURN COALESCE(cardinality(moved), 0);
END
$$;

CREATE FUNCTION lockstep.outbox_operate(verb text, my_dispatcher text, my_topic text, my_key text, my_seq bigint, my_reason text, my_id uuid DEFAULT NULL::uuid) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  mine uuid := "lockstep".outbox_stream(my_topic, my_key);
  d "lockstep".outbox_dispatchers;
  p "lockstep".outbox_parked;
  head bigint;
  head_id uuid;
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  -- Not while it is removed: what is paused then would be left behind.
  SELECT * INTO d FROM "lockstep".outbox_dispatchers o WHERE o.name = my_dispatcher FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN 'no dispatcher';
  END IF;
  IF verb = 'pause' THEN
    INSERT INTO "lockstep".outbox_parked AS o (dispatcher, stream, shard, topic, key, state, reason)
    VALUES (my_dispatcher, mine, "lockstep".outbox_shard("lockstep".outbox_bucket(mine), d.shards), my_topic, my_key, 'paused', my_reason)
        ON CONFLICT (dispatcher, stream) DO UPDATE SET state = 'paused', reason = EXCLUDED.reason;
  ELSE
    SELECT * INTO p FROM "lockstep".outbox_parked o WHERE o.dispatcher = my_dispatcher AND o.stream = mine FOR UPDATE;
    IF NOT FOUND OR (verb = 'resume') <> (p.state = 'paused') THEN
      RETURN CASE WHEN p.state = 'paused' THEN 'paused' WHEN p.state IS NULL THEN 'not parked' ELSE 'not paused' END;
    END IF;
    IF verb = 'skip' THEN
      SELECT e.seq, e.uuid INTO head, head_id FROM "lockstep".outbox_parked_events e
       WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq > p.sent_seq ORDER BY e.seq LIMIT 1;
      -- The operator has seen this one at the head; by now it may have got through.
      IF head IS DISTINCT FROM my_seq OR head_id <> my_id THEN
        RETURN 'not at the head';
      END IF;
      UPDATE "lockstep".outbox_parked_events e SET tombstone = 'skipped', payload = NULL, bytes = NULL
       WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = head;
    END IF;
    UPDATE "lockstep".outbox_parked o SET state = 'parked', attempts = 0, next_attempt_at = clock_timestamp()
     WHERE o.dispatcher = my_dispatcher AND o.stream = mine;
  END IF;
  INSERT INTO "lockstep".outbox_audit (verb, dispatcher, topic, key, seq, reason)
  VALUES (verb, my_dispatcher, my_topic, my_key, head, my_reason);
  RETURN 'done';
END
$$;

CREATE FUNCTION lockstep.outbox_owns(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  SELECT COALESCE((SELECT o.fence = my_fence FROM "lockstep".outbox_cursors o
                    WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1), false)
     AND EXISTS (SELECT FROM "lockstep".outbox_here(my_dispatcher) AS h WHERE h.life = my_life AND NOT h.elsewhere)
$$;

CREATE FUNCTION lockstep.outbox_parked_due(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, max_streams integer, max_events integer) RETURNS TABLE(attempts integer, event_id bigint, topic text, key text, seq bigint, uuid uuid, enqueued_ms bigint, payload text, hex text, headers text, tombstone text, unreadable bigint, more text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
  most_bytes CONSTANT bigint := 8000000;
  limit_bytes bigint := "lockstep".outbox_max_event_bytes();
  spent bigint := 0;
  size bigint;
  events integer;
  p record;
  e record;
BEGIN
  IF NOT "lockstep".outbox_owns(my_dispatcher, my_shard, my_fence, my_life) THEN
    RETURN;
  END IF;
  FOR p IN SELECT d.stream, d.topic, d.key, d.attempts, d.sent_seq FROM "lockstep".outbox_parked d
            WHERE d.dispatcher = my_dispatcher AND d.shard = my_shard AND d.state = 'parked' AND d.next_attempt_at <= clock_timestamp()
            ORDER BY d.next_attempt_at LIMIT max_streams LOOP
    EXIT WHEN spent >= most_bytes;
    events := 0;
    more := NULL;
    SELECT INTO attempts, topic, key p.attempts, p.topic, p.key;
    FOR e IN SELECT q.id, q.seq, q.uuid, q.enqueued_at, q.payload, q.bytes, q.headers, q.tombstone FROM "lockstep".outbox_parked_events q
              WHERE q.dispatcher = my_dispatcher AND q.stream = p.stream AND q.seq > p.sent_seq
               ORDER BY q.seq LIMIT max_events + 1 LOOP
      IF events = max_events OR spent >= most_bytes THEN
        more := 'more';
        EXIT;
      END IF;
      events := events + 1;
      SELECT INTO event_id, seq, uuid, enqueued_ms, tombstone, payload, hex, headers, unreadable
                  e.id, e.seq, e.uuid, floor(extract(epoch FROM e.enqueued_at) * 1000)::bigint, e.tombstone, NULL, NULL, NULL, NULL;
      -- First by what is stored, so that nothing huge is unpacked.
      size := "lockstep".outbox_stored_bytes(e.payload, e.bytes, e.headers);
      unreadable := size;
      IF size <= limit_bytes THEN
        BEGIN
          SELECT INTO payload, headers, hex e.payload, e.headers, encode(e.bytes, 'hex');
          size := COALESCE(octet_length(e.bytes), octet_length(payload), 0)::bigint + COALESCE(octet_length(headers), 0);
          unreadable := CASE WHEN size > limit_bytes THEN size END;
        EXCEPTION WHEN program_limit_exceeded OR out_of_memory OR internal_error THEN
          -- The server cannot unpack it.
          unreadable := size;
        END;
      END IF;
      IF unreadable IS NULL THEN
        spent := spent + COALESCE(octet_length(hex), octet_length(payload), 0) + COALESCE(octet_length(headers), 0);
      ELSE
        SELECT INTO payload, headers, hex NULL, NULL, NULL;
      END IF;
      RETURN NEXT;
    END LOOP;
    IF events = 0 OR more IS NOT NULL THEN
      SELECT INTO event_id, seq, uuid, enqueued_ms, tombstone, payload, hex, headers, unreadable
                  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
      RETURN NEXT;
    END IF;
  END LOOP;
END
$$;

CREATE FUNCTION lockstep.outbox_parked_list(my_dispatcher text, most integer) RETURNS TABLE(dispatcher text, topic text, key text, state text, attempts integer, reason text, since timestamp with time zone, next_attempt_at timestamp with time zone, events bigint, head bigint, head_id uuid)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  RETURN QUERY
  SELECT p.dispatcher, p.topic, p.key, p.state, p.attempts, p.reason, p.since,
         CASE WHEN p.state = 'parked' THEN p.next_attempt_at END, COALESCE(e.last - e.head + 1, 0), e.head,
         (SELECT q.uuid FROM "lockstep".outbox_parked_events q
           WHERE q.dispatcher = p.dispatcher AND q.stream = p.stream AND q.seq = e.head)
    FROM "lockstep".outbox_parked p
    CROSS JOIN LATERAL (SELECT min(q.seq) AS head, max(q.seq) AS last FROM "lockstep".outbox_parked_events q
                         WHERE q.dispatcher = p.dispatcher AND q.stream = p.stream AND q.seq > p.sent_seq) AS e
   WHERE my_dispatcher IS NULL OR p.dispatcher = my_dispatcher
   ORDER BY p.since LIMIT most;
END
$$;

CREATE FUNCTION lockstep.outbox_parked_tried(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, outcomes jsonb) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
  o record;
  mine uuid;
  floor bigint;
BEGIN
  PERFORM pg_advisory_xact_lock_shared("lockstep".outbox_shard_lock(my_dispatcher, my_shard));
  IF NOT "lockstep".outbox_owns(my_dispatcher, my_shard, my_fence, my_life) THEN
    RETURN false;
  END IF;
  FOR o IN SELECT * FROM jsonb_to_recordset(outcomes) AS r(topic text, key text, sent uuid[], sent_up_to bigint, id uuid, seq bigint,
                                                           reason text, attempts integer, delay_ms float8, state text, give_up text,
                                                           was_tombstone boolean) LOOP
    mine := "lockstep".outbox_stream(o.topic, o.key);
    -- In the order in which operators lock: the stream, then its events.
    SELECT p.sent_seq INTO floor FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.stream = mine FOR UPDATE;
    DELETE FROM "lockstep".outbox_parked_events e
     WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq > floor AND e.seq <= o.sent_up_to
       AND e.uuid = ANY(o.sent);
    IF o.sent_up_to > floor
       AND NOT EXISTS (SELECT FROM "lockstep".outbox_parked_events e
                        WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq > floor AND e.seq <= o.sent_up_to) THEN
      floor := o.sent_up_to;
    END IF;
    -- Where an operator has given the event up meanwhile, its earlier outcome does not count.
    IF o.seq IS NULL OR EXISTS (SELECT FROM "lockstep".outbox_parked_events e
                                 WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = o.seq
                                   AND e.tombstone IS NOT NULL AND NOT o.was_tombstone) THEN
      UPDATE "lockstep".outbox_parked p SET attempts = 0, reason = NULL, next_attempt_at = clock_timestamp(), sent_seq = floor
       WHERE p.dispatcher = my_dispatcher AND p.stream = mine AND p.state = 'parked';
    ELSE
      IF o.give_up IS NOT NULL THEN
        -- A crash must not bring back what a tombstone has gone out for.
        PERFORM set_config('synchronous_commit', 'on', true);
      END IF;
      IF o.give_up = 'dead' THEN
        INSERT INTO "lockstep".outbox_dead
        SELECT e.dispatcher, e.stream, e.seq, e.id, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, o.reason
          FROM "lockstep".outbox_parked_events e
         WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = o.seq AND e.uuid = o.id
            ON CONFLICT DO NOTHING;
      END IF;
      IF o.give_up IS NOT NULL THEN
        UPDATE "lockstep".outbox_parked_events e SET tombstone = o.give_up, payload = NULL, bytes = NULL
         WHERE e.dispatcher = my_dispatcher AND e.stream = mine AND e.seq = o.seq AND e.uuid = o.id;
        INSERT INTO "lockstep".outbox_audit (verb, dispatcher, topic, key, seq, reason)
        VALUES (o.give_up, my_dispatcher, o.topic, o.key, o.seq, o.reason);
      END IF;
      -- What an operator said meanwhile stays said.
      UPDATE "lockstep".outbox_parked p
         SET attempts = o.attempts, reason = o.reason, state = COALESCE(o.state, p.state), sent_seq = floor,
             next_attempt_at = clock_timestamp() + make_interval(secs => COALESCE(o.delay_ms, 0) / 1000.0)
       WHERE p.dispatcher = my_dispatcher AND p.stream = mine AND p.state = 'parked';
    END IF;
  END LOOP;
  RETURN true;
END
$$;

CREATE FUNCTION lockstep.outbox_passed() RETURNS xid8
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  here text := (SELECT s.system_identifier::text FROM pg_control_system() AS s);
  passed xid8;
BEGIN
  IF NOT EXISTS (SELECT FROM "lockstep".outbox_home h WHERE h.system = here)
     OR EXISTS (SELECT FROM "lockstep".outbox_dispatchers d WHERE d.system <> here) THEN
    RETURN NULL;
  END IF;
  -- PostgreSQL 14 has no min() of these.
  SELECT (array_agg(p.xid ORDER BY p.xid))[1] INTO passed
    FROM "lockstep".outbox_dispatchers d
    CROSS JOIN LATERAL generate_series(0, d.shards - 1) AS n(shard)
    LEFT JOIN LATERAL (SELECT * FROM "lockstep".outbox_cursors o
                        WHERE o.dispatcher = d.name AND o.shard = n.shard ORDER BY o.version DESC LIMIT 1) AS c ON true
    CROSS JOIN LATERAL (SELECT CASE WHEN c.done THEN pg_snapshot_xmin(c.next) ELSE pg_snapshot_xmin(c.prev) END AS xid) AS p
   HAVING count(*) = count(c.version);
  RETURN passed;
END
$$;

CREATE FUNCTION lockstep.outbox_plain_headers(headers text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$ SELECT headers ~ '^[{]("[^"\\]*": ?"[^"\\]*"[,} ]+)+$' $_$;

CREATE FUNCTION lockstep.outbox_position() RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$ SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END FROM "lockstep".outbox_ids s $$;

CREATE FUNCTION lockstep.outbox_prepare_segment(min_age interval) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  current_slot smallint := (SELECT last_value FROM "lockstep".outbox_slot);
BEGIN
  INSERT INTO "lockstep".outbox_segments (slot, number, opened_at)
  SELECT (s.slot + 1) % 8, s.number + 1, clock_timestamp()
    FROM "lockstep".outbox_segments s
   WHERE s.slot = current_slot AND s.opened_at <= clock_timestamp() - COALESCE(min_age, "lockstep".outbox_retention() / 6)
     AND EXISTS (SELECT FROM "lockstep".outbox_events e WHERE e.slot = current_slot)
      ON CONFLICT DO NOTHING;
  RETURN FOUND;
END
$$;

CREATE FUNCTION lockstep.outbox_read(my_dispatcher text, my_shards smallint[], my_fences bigint[], max_events integer[], shard_count integer) RETURNS TABLE(shard text, verdict text, life text, prev text, next text, version text, last_id text, parked_due_ms text, stale text, whole text, ids text, topics text, keys text, seqs text, uuids text, enqueued text, bodies text, headers text, flags text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $_$
DECLARE
  c "lockstep".outbox_cursors;
  a pg_snapshot;
  z pg_snapshot;
  tick pg_snapshot;
  ended xid8[];
  source text;
  events text;
  few_groups smallint[];
  few_xids xid8[];
  groups smallint[];
  slots smallint[];
  floor bigint;
  resumed boolean;
  found_events integer;
  most integer;
  -- What is large is read in smaller pieces; what was packed tightly, in still smaller ones: all of it must fit into one value.
  most_stored CONSTANT bigint := 4000000;
  most_bytes CONSTANT bigint := 8000000;
  limit_bytes bigint := "lockstep".outbox_max_event_bytes();
  stored bigint;
  large boolean;
  bytes bigint;
  -- What the shards so far have got.
  spent bigint := 0;
  written pg_lsn;
  here record;
  -- What is on disk here may not be on the standby yet, and visible all the same: a COMMIT that is cancelled, or terminated, while it
  -- waits for the standby is a commit.
  alone boolean := current_setting('synchronous_standby_names') = '';
  stride integer;
BEGIN
  SELECT * INTO here FROM "lockstep".outbox_here(my_dispatcher);
  FOR i IN 1 .. cardinality(my_shards) LOOP
    EXIT WHEN spent >= most_bytes;
    shard := my_shards[i];
    IF here.elsewhere THEN
      verdict := 'elsewhere';
      RETURN NEXT;
      CONTINUE;
    END IF;
    SELECT * INTO c FROM "lockstep".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shards[i] ORDER BY o.version DESC LIMIT 1;
    IF c.fence IS DISTINCT FROM my_fences[i] THEN
      SELECT INTO verdict, life, prev, next, version, last_id, parked_due_ms, stale, whole, found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
                  'lost', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
      RETURN NEXT;
      CONTINUE;
    END IF;
    groups := ARRAY(SELECT generate_series(my_shards[i] * 64 / shard_count, (my_shards[i] + 1) * 64 / shard_count - 1)::smallint);
    -- So many ticks hold somewhat fewer events than are wanted: the rest of a window costs as much as a window.
    stride := greatest(1, max_events[i] * shard_count / 1250);
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
      written := NULL;
      IF z IS NULL THEN
        SELECT t.snapshot, t.written INTO tick, written FROM "lockstep".outbox_ticks t
         WHERE t.newest >= pg_snapshot_xmax(a)
           AND (t.newest > pg_snapshot_xmax(a) OR t.running < "lockstep".outbox_running(a))
         ORDER BY t.newest, t.running DESC OFFSET stride - 1 LIMIT 1;
        z := COALESCE(tick, pg_current_snapshot());
      END IF;
      -- A transaction that was open when the window began and still is at its end has nothing in it.
      ended := ARRAY(SELECT x FROM pg_snapshot_xip(a) AS x WHERE pg_visible_in_snapshot(x, z) ORDER BY x);
      -- Not those that were sealed before the first transaction of the window: one that stays open for long does not count, so that
      -- the slots since it began are not read all the time. The current slot always: a restored dump may not know it.
      slots := ARRAY(SELECT s.slot FROM "lockstep".outbox_segments s
                      WHERE s.sealed_xid IS NULL OR s.sealed_xid > least(pg_snapshot_xmax(a), ended[1])
                     UNION SELECT o.last_value FROM "lockstep".outbox_slot o);
      -- The rest of a window of few transactions, such as one that wrote a million events: read again for every piece, 6,500/s;
      -- transaction by transaction, from where the last piece ended, 47,000/s.
      few_groups := NULL;
      IF resumed AND floor > 0 THEN
        SELECT * INTO few_groups, few_xids FROM "lockstep".outbox_window_parts(slots, groups, a, z);
      END IF;
      -- Where nothing is stored apart, every event fits on a page, and none needs to be measured: that is an eighth of the time.
      large := (SELECT bool_or(pg_relation_size(r.reltoastrelid) > 0)
                  FROM unnest(slots) AS n JOIN pg_class r ON r.oid = format('%I.outbox_events_%s', 'lockstep', n)::regclass);
      most := max_events[i];
      LOOP
        BEGIN
          -- Mostly there is one slot, and the plan for it is kept. One plan for all slots would lock all of them, and wait for a session that
          -- empties one; without one kept, the planning takes four fifths of the time when there is little to read.
          CASE WHEN cardinality(slots) > 1 OR few_groups IS NOT NULL THEN
            source := CASE WHEN cardinality(slots) = 1 THEN format('%I.outbox_events_%s', 'lockstep', slots[1])
                           ELSE format('(SELECT * FROM %I.outbox_events WHERE slot = ANY(%L::smallint[]))', 'lockstep', slots) END;
            events := CASE WHEN few_groups IS NULL
              THEN format('SELECT * FROM %1$s AS e WHERE e.bucket_group = ANY($2) AND e.xid >= $3 AND e.xid < $4 AND e.id > $5 UNION ALL
                           SELECT t.* FROM unnest($6) AS x(xid) CROSS JOIN LATERAL (
                             SELECT * FROM %1$s AS e WHERE e.bucket_group = ANY($2) AND e.xid = x.xid AND e.id > $5 OFFSET 0
                           ) AS t', source)
              ELSE format('SELECT e.* FROM unnest($7, $8) AS p(bucket_group, xid) CROSS JOIN LATERAL (
                             SELECT * FROM %s AS v WHERE v.bucket_group = p.bucket_group AND v.xid = p.xid AND v.id > $5 ORDER BY v.id LIMIT $9
                           ) AS e', source) END;
            EXECUTE format($query$SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(CASE WHEN w.unpacked > $13 THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > $13 THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM %I.outbox_parked p WHERE p.dispatcher = $10 AND p.shard = $1) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size)
                FROM (SELECT m.*, CASE WHEN m.stored > $13 THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > $13 THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > $13 THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (%s) AS v WHERE pg_visible_in_snapshot(v.xid, $11) ORDER BY v.id LIMIT $9) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < $12 OFFSET 0) AS m) AS w$query$, 'lockstep', events)
              INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              USING my_shards[i], groups, pg_snapshot_xmax(a), pg_snapshot_xmax(z), floor, ended, few_groups, few_xids, most,
                    my_dispatcher, z, most_stored, limit_bytes;
          WHEN slots[1] = 0 AND NOT large THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_0 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_0 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 0 THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_0 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_0 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 1 AND NOT large THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_1 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_1 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 1 THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_1 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_1 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 2 AND NOT large THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_2 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_2 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 2 THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_2 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_2 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 3 AND NOT large THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_3 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_3 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 3 THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_3 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_3 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 4 AND NOT large THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_4 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_4 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 4 THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_4 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_4 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 5 AND NOT large THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_5 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_5 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 5 THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_5 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_5 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 6 AND NOT large THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_6 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_6 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 6 THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_6 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_6 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 7 AND NOT large THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_7 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_7 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 7 THEN
            SELECT count(*), encode(string_agg(int8send(w.id), ''), 'hex'), json_agg(w.topic), json_agg(w.key), encode(string_agg(int8send(w.seq), ''), 'hex'),
               encode(string_agg(uuid_send(w.uuid), ''), 'hex'), encode(string_agg(timestamptz_send(w.enqueued_at), ''), 'hex'),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_7 e
                       WHERE e.bucket_group = ANY(groups) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN LATERAL (
                        SELECT e.id, e.xid, e.stream, e.seq, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers, e.erased FROM "lockstep".outbox_events_7 e
                         WHERE e.bucket_group = ANY(groups) AND e.xid = x.xid AND e.id > floor OFFSET 0) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          END CASE;
          bytes := octet_length(bodies) + octet_length(headers);
          EXIT WHEN found_events <= 1 OR bytes <= most_bytes;
          most := greatest(1, found_events * (most_bytes / 2) / bytes);
        EXCEPTION WHEN program_limit_exceeded OR out_of_memory OR internal_error THEN
          -- One event that the server cannot unpack is reported as too large, by what is stored of it.
          IF most = 1 AND limit_bytes < 0 THEN RAISE; END IF;
          limit_bytes := CASE WHEN most = 1 THEN -1 ELSE limit_bytes END;
          most := greatest(1, most / 8);
        END;
      END LOOP;
      limit_bytes := "lockstep".outbox_max_event_bytes();
      EXIT WHEN found_events > 0 OR (tick IS NULL AND NOT resumed);
      -- Nothing for this shard up to that tick, or no more in the window that was being read: on to the next.
      resumed := false;
      a := z;
      z := NULL;
      floor := 0;
    END LOOP;
    -- Whatever is visible in the window has its commit before this place in the log: that of the tick, else the current one.
    written := COALESCE(written, pg_current_wal_insert_lsn());
    verdict := CASE WHEN alone AND pg_current_wal_flush_lsn() >= written THEN 'durable' ELSE 'visible' END;
    life := here.life;
    prev := a;
    next := z;
    version := c.version;
    last_id := (SELECT s.last_value FROM "lockstep".outbox_ids s);
    -- A segment waits for this cursor to be written, and it could be by now.
    stale := (SELECT 'stale' FROM "lockstep".outbox_segments s
               WHERE s.sealed_xid > pg_snapshot_xmin(CASE WHEN c.done THEN c.next ELSE c.prev END)
                 AND s.sealed_xid <= pg_snapshot_xmin(z) LIMIT 1);
    parked_due_ms := (SELECT ceil(extract(epoch FROM min(p.next_attempt_at) - clock_timestamp()) * 1000)::bigint
                        FROM "lockstep".outbox_parked p
                       WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i] AND p.state = 'parked');
    whole := CASE WHEN found_events < most AND COALESCE(stored, 0) < most_stored THEN 'whole' END;
    spent := spent + COALESCE(bytes, 0);
    RETURN NEXT;
  END LOOP;
END
$_$;

CREATE FUNCTION lockstep.outbox_rebase(my_dispatcher text, choice text, this_system text, this_database text, this_timeline bigint, my_reason text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  d "lockstep".outbox_dispatchers;
  c "lockstep".outbox_cursors;
  put_aside bigint := 0;
  more bigint;
BEGIN
  IF choice NOT IN ('undelivered', 'all', 'none') THEN
    RAISE EXCEPTION 'choose undelivered, all or none' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM set_config('synchronous_commit', 'on', true);
  PERFORM "lockstep".outbox_halt();
  SELECT * INTO d FROM "lockstep".outbox_dispatchers o WHERE o.name = my_dispatcher;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  FOR n IN 0 .. d.shards - 1 LOOP
    SELECT * INTO c FROM "lockstep".outbox_cursors o WHERE o.dispatcher = my_dispatcher AND o.shard = n ORDER BY o.version DESC LIMIT 1;
    IF NOT FOUND THEN
      c.version := 0;
      c.fence := 0;
      c.next := '1:1:';
      c.done := true;
      c.seen_id := 0;
    END IF;
    IF choice <> 'none' THEN
      INSERT INTO "lockstep".outbox_parked_events
      SELECT my_dispatcher, e.stream, e.seq, e.id, e.uuid, e.enqueued_at, e.topic, e.key, e.payload, e.bytes, e.headers,
             CASE WHEN e.erased THEN 'erased' END
        FROM "lockstep".outbox_events e
       WHERE "lockstep".outbox_shard(e.bucket, d.shards) = n
         -- What was enqueued here, after the restore, has a larger id than anything that the old cursors know of.
         AND (choice = 'all' OR e.id > c.seen_id OR NOT CASE WHEN c.done THEN pg_visible_in_snapshot(e.xid, c.next)
                ELSE pg_visible_in_snapshot(e.xid, c.prev) OR (pg_visible_in_snapshot(e.xid, c.next) AND e.id <= c.after_id) END)
          ON CONFLICT DO NOTHING;
      GET DIAGNOSTICS more = ROW_COUNT;
      put_aside := put_aside + more;
    END IF;
    INSERT INTO "lockstep".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
    SELECT my_dispatcher, n, c.version + 1, c.fence, pg_current_snapshot(), pg_current_snapshot(), 0, true, o.last_value
      FROM "lockstep".outbox_ids o;
  END LOOP;
  -- What is put aside now can have smaller numbers than what was sent.
  UPDATE "lockstep".outbox_parked o SET sent_seq = 0 WHERE o.dispatcher = my_dispatcher AND o.sent_seq > 0;
  INSERT INTO "lockstep".outbox_parked (dispatcher, stream, shard, topic, key, state, reason)
  SELECT DISTINCT my_dispatcher, e.stream, "lockstep".outbox_shard("lockstep".outbox_bucket(e.stream), d.shards), e.topic, e.key, 'parked', 'rebase'
    FROM "lockstep".outbox_parked_events e WHERE e.dispatcher = my_dispatcher
      ON CONFLICT DO NOTHING;
  UPDATE "lockstep".outbox_dispatchers o SET system = this_system, database = this_database, timeline = this_timeline
   WHERE o.name = my_dispatcher;
  INSERT INTO "lockstep".outbox_audit (verb, dispatcher, reason) VALUES ('rebase ' || choice, my_dispatcher, my_reason);
  RETURN put_aside;
END
$$;

CREATE FUNCTION lockstep.outbox_refuse_isolation() RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
BEGIN
  RAISE EXCEPTION 'an event cannot be enqueued at %: its number would be read from a snapshot that is older than the stream''s lock',
    upper(current_setting('transaction_isolation'))
    USING ERRCODE = 'feature_not_supported',
          HINT = 'Use READ COMMITTED, or declare the stream: lockstep.transaction({ isolation, streams: [{ topic, key }] }, fn).';
END
$$;

CREATE FUNCTION lockstep.outbox_refuse_payload(topic text, key text, json_bytes integer, bytes_bytes integer, header_bytes integer) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
  size bigint := COALESCE(json_bytes, bytes_bytes)::bigint + COALESCE(header_bytes, 0);
BEGIN
  IF json_bytes IS NULL AND bytes_bytes IS NULL THEN
    RAISE EXCEPTION 'the payload of an event of %/% is SQL NULL', topic, key
      USING ERRCODE = 'null_value_not_allowed', HINT = 'Enqueue JSON null as ''null''::json.';
  ELSIF json_bytes IS NOT NULL AND bytes_bytes IS NOT NULL THEN
    RAISE EXCEPTION 'an event of %/% has two payloads, JSON and bytes', topic, key
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass one of them, and NULL for the other.';
  ELSIF size > "lockstep".outbox_max_event_bytes() THEN
    RAISE EXCEPTION 'an event of %/% has % bytes, more than the limit of % bytes', topic, key, size, "lockstep".outbox_max_event_bytes()
      USING ERRCODE = 'program_limit_exceeded',
            HINT = 'Store what is large elsewhere and send a reference, or raise the limit: npx pg-lockstep migrate --max-event-bytes N.';
  END IF;
END
$$;

CREATE FUNCTION lockstep.outbox_register(my_name text, my_shards smallint, this_system text, this_database text, this_timeline bigint, shards_stated boolean, my_retain_ms bigint, OUT shards smallint, OUT system text, OUT database text, OUT timeline bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM "lockstep".outbox_home h WHERE h.system = this_system) THEN
    -- Without events there is nothing to choose about: a dump without them, or of an outbox that had none. What else names another
    -- server's transactions must go with its name. A tick of its ids would end every window here far in the future, and what is
    -- enqueued below would count as delivered.
    PERFORM "lockstep".outbox_halt();
    IF NOT EXISTS (SELECT FROM "lockstep".outbox_home h WHERE h.system = this_system)
       AND NOT EXISTS (SELECT FROM "lockstep".outbox_events) THEN
      PERFORM "lockstep".outbox_forget_xids(this_system);
    END IF;
  END IF;
  SELECT h.system INTO system FROM "lockstep".outbox_home h;
  IF system IS DISTINCT FROM this_system THEN
    RETURN;
  END IF;
  INSERT INTO "lockstep".outbox_dispatchers (name, shards, system, database, timeline, retain_ms)
  VALUES (my_name, my_shards, this_system, this_database, this_timeline, my_retain_ms) ON CONFLICT DO NOTHING;
  IF FOUND THEN
    -- Of a dump that had the cursors and not the dispatchers. What is put aside stays: it was not delivered.
    DELETE FROM "lockstep".outbox_cursors o WHERE o.dispatcher = my_name;
  END IF;
  -- A promotion begins a new timeline, and the cursors are as good as before.
  UPDATE "lockstep".outbox_dispatchers o SET timeline = this_timeline
   WHERE o.name = my_name AND o.system = this_system AND o.database = this_database AND o.timeline < this_timeline;
  UPDATE "lockstep".outbox_dispatchers o SET retain_ms = my_retain_ms
   WHERE o.name = my_name AND o.system = this_system AND o.database = this_database AND o.timeline = this_timeline
     AND (o.shards = my_shards OR NOT shards_stated) AND o.retain_ms IS DISTINCT FROM my_retain_ms;
  SELECT o.shards, o.system, o.database, o.timeline INTO shards, system, database, timeline
    FROM "lockstep".outbox_dispatchers o WHERE o.name = my_name;
END
$$;

CREATE FUNCTION lockstep.outbox_remove(my_dispatcher text, my_reason text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  PERFORM FROM "lockstep".outbox_dispatchers o WHERE o.name = my_dispatcher FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 'no dispatcher';
  END IF;
  IF EXISTS (SELECT FROM "lockstep".leases l
              WHERE starts_with(l.name, 'Outbox:' || my_dispatcher || ':') AND l.token IS NOT NULL AND l.expires_at > clock_timestamp()) THEN
    RETURN 'running';
  END IF;
  -- Waits for cursors that are being moved: they would not be seen below, and be left behind, with what is put aside with them. Not for
  -- long: a dispatcher that moves one waits behind it.
  PERFORM set_config('lock_timeout', '2s', true);
  BEGIN
    LOCK TABLE "lockstep".outbox_cursors IN SHARE ROW EXCLUSIVE MODE;
  EXCEPTION WHEN lock_not_available THEN
    RETURN 'running';
  END;
  PERFORM set_config('lock_timeout', '0', true);
  DELETE FROM "lockstep".outbox_cursors o WHERE o.dispatcher = my_dispatcher;
  DELETE FROM "lockstep".outbox_parked o WHERE o.dispatcher = my_dispatcher;
  DELETE FROM "lockstep".outbox_parked_events o WHERE o.dispatcher = my_dispatcher;
  DELETE FROM "lockstep".outbox_dispatchers o WHERE o.name = my_dispatcher;
  INSERT INTO "lockstep".outbox_audit (verb, dispatcher, reason) VALUES ('remove', my_dispatcher, my_reason);
  RETURN 'done';
END
$$;

CREATE SEQUENCE lockstep.outbox_ids
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE lockstep.outbox_events (
    slot smallint NOT NULL,
    id bigint DEFAULT nextval('lockstep.outbox_ids'::regclass) NOT NULL,
    xid xid8 NOT NULL,
    bucket smallint NOT NULL,
    bucket_group smallint NOT NULL,
    stream uuid NOT NULL,
    seq bigint NOT NULL,
    uuid uuid NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    payload json,
    bytes bytea,
    headers json,
    erased boolean DEFAULT false NOT NULL
)
PARTITION BY LIST (slot);

CREATE FUNCTION lockstep.outbox_replay_after(after_id bigint, up_to bigint, my_topic text, most integer) RETURNS SETOF lockstep.outbox_events
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
BEGIN
  RETURN QUERY
  SELECT * FROM "lockstep".outbox_events e
   WHERE e.id > after_id AND e.id <= up_to AND (my_topic IS NULL OR e.topic = my_topic)
   ORDER BY e.id LIMIT most;
END
$$;

CREATE FUNCTION lockstep.outbox_replay_stream(my_topic text, my_key text, from_seq bigint, to_seq bigint, up_to bigint, most integer) RETURNS SETOF lockstep.outbox_events
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_custom_plan'
    AS $$
BEGIN
  RETURN QUERY
  SELECT * FROM "lockstep".outbox_events e
   WHERE e.stream = "lockstep".outbox_stream(my_topic, my_key)
     AND e.seq >= from_seq AND e.id <= up_to AND (to_seq IS NULL OR e.seq <= to_seq)
   ORDER BY e.seq LIMIT most;
END
$$;

CREATE FUNCTION lockstep.outbox_replicated(place pg_lsn) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
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

CREATE FUNCTION lockstep.outbox_retention() RETURNS interval
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  RETURN (SELECT CASE WHEN count(*) = count(d.retain_ms) THEN make_interval(secs => max(d.retain_ms) / 1000.0) END
            FROM "lockstep".outbox_dispatchers d);
END
$$;

CREATE FUNCTION lockstep.outbox_rotate() RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  here "lockstep".outbox_segments;
  there "lockstep".outbox_segments;
BEGIN
  IF NOT pg_try_advisory_xact_lock("lockstep".lock_id('outbox-retain', 'Outbox:rotate')) THEN
    RETURN false;
  END IF;
  SELECT * INTO here FROM "lockstep".outbox_segments s WHERE s.slot = (SELECT last_value FROM "lockstep".outbox_slot);
  SELECT * INTO there FROM "lockstep".outbox_segments s WHERE s.number = here.number + 1;
  IF there.slot IS NULL THEN
    RETURN false;
  END IF;
  PERFORM setval(format('%I.outbox_slot', 'lockstep')::regclass, there.slot);
  UPDATE "lockstep".outbox_segments s SET opened_at = clock_timestamp() WHERE s.slot = there.slot;
  RETURN true;
END
$$;

CREATE FUNCTION lockstep.outbox_running(given pg_snapshot) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT count(*)::integer FROM pg_snapshot_xip(given) $$;

CREATE FUNCTION lockstep.outbox_seal() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  current_number bigint := (SELECT s.number FROM "lockstep".outbox_segments s WHERE s.slot = (SELECT last_value FROM "lockstep".outbox_slot));
  sealed integer;
BEGIN
  UPDATE "lockstep".outbox_segments s SET left_at = clock_timestamp(), sealed_xid = pg_current_xact_id()
   WHERE s.number < current_number AND s.sealed_xid IS NULL;
  GET DIAGNOSTICS sealed = ROW_COUNT;
  RETURN sealed;
END
$$;

CREATE FUNCTION lockstep.outbox_segment_list() RETURNS TABLE(number bigint, opened_at timestamp with time zone, left_at timestamp with time zone, bytes bigint, is_current boolean)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
BEGIN
  RETURN QUERY
  SELECT s.number, s.opened_at, s.left_at, pg_total_relation_size(format('%I.%I', 'lockstep', 'outbox_events_' || s.slot)::regclass),
         s.slot = (SELECT o.last_value FROM "lockstep".outbox_slot o)
    FROM "lockstep".outbox_segments s ORDER BY s.number;
END
$$;

CREATE FUNCTION lockstep.outbox_shard(bucket smallint, shards smallint) RETURNS smallint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT (bucket::integer * shards / 1024)::smallint $$;

CREATE FUNCTION lockstep.outbox_shard_lock(my_dispatcher text, my_shard smallint) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
BEGIN
  RETURN ('x' || encode(substr(sha256(
    convert_to('lockstep', 'UTF8') || decode('006f7574626f782d736861726400', 'hex') || convert_to(my_dispatcher || ':' || my_shard, 'UTF8')
  ), 1, 8), 'hex'))::bit(64)::bigint;
END
$$;

CREATE FUNCTION lockstep.outbox_status() RETURNS TABLE(dispatcher text, shard text, fence text, moved_ms text, parked text, lag_events text, lag_exact text, oldest_ms text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
  d "lockstep".outbox_dispatchers;
  c "lockstep".outbox_cursors;
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
BEGIN
  FOR d IN SELECT * FROM "lockstep".outbox_dispatchers o ORDER BY o.name LOOP
    FOR n IN 0 .. d.shards - 1 LOOP
      SELECT * INTO c FROM "lockstep".outbox_cursors o WHERE o.dispatcher = d.name AND o.shard = n ORDER BY o.version DESC LIMIT 1;
      SELECT INTO total, all_exact, oldest, next 0, true, NULL, COALESCE(c.next, '1:1:');
      groups := ARRAY(SELECT generate_series(n * 64 / d.shards, (n + 1) * 64 / d.shards - 1)::smallint);
      -- As in outbox_read().
      ended := ARRAY(SELECT x FROM pg_snapshot_xip(next) AS x WHERE pg_visible_in_snapshot(x, pg_current_snapshot()) ORDER BY x);
      slots := ARRAY(SELECT s.slot FROM "lockstep".outbox_segments s
                      WHERE s.sealed_xid IS NULL OR s.sealed_xid > least(pg_snapshot_xmax(next), ended[1])
                     UNION SELECT o.last_value FROM "lockstep".outbox_slot o);
      FOR part IN SELECT r.* FROM unnest(groups) AS g
                   CROSS JOIN (SELECT pg_snapshot_xmax(next) AS low, NULL::xid8 AS high UNION ALL SELECT x, x FROM unnest(ended) AS x) AS w
                   CROSS JOIN LATERAL "lockstep".outbox_estimate(slots, g, w.low, w.high, 0::bigint) AS r LOOP
        SELECT INTO total, all_exact, oldest total + part.events, all_exact AND part.exact, least(oldest, part.oldest);
      END LOOP;
      IF NOT c.done THEN
        ended := ARRAY(SELECT x FROM pg_snapshot_xip(c.prev) AS x WHERE pg_visible_in_snapshot(x, next) ORDER BY x);
        slots := ARRAY(SELECT s.slot FROM "lockstep".outbox_segments s
                        WHERE s.sealed_xid IS NULL OR s.sealed_xid > least(pg_snapshot_xmax(c.prev), ended[1])
                       UNION SELECT o.last_value FROM "lockstep".outbox_slot o);
        SELECT * INTO part_groups, part_xids FROM "lockstep".outbox_window_parts(slots, groups, c.prev, next);
        IF part_groups IS NULL THEN
          -- Many small transactions: ids grow with them, nearly. So the place that the cursor has come to is found by halving.
          SELECT INTO part_groups, part_xids array_agg(g), array_agg(x) FROM unnest(groups) AS g CROSS JOIN unnest(ended) AS x;
          FOR i IN 1 .. cardinality(groups) LOOP
            low := pg_snapshot_xmax(c.prev)::text::bigint;
            high := pg_snapshot_xmax(next)::text::bigint;
            WHILE low < high LOOP
              middle := (low + high) / 2;
              SELECT e.id, e.xid INTO at FROM "lockstep".outbox_events e
               WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = groups[i] AND e.xid >= middle::text::xid8 AND e.xid < high::text::xid8
               ORDER BY e.bucket_group, e.xid, e.id LIMIT 1;
              IF NOT FOUND OR at.id > c.after_id THEN
                high := middle;
              ELSE
                low := at.xid::text::bigint + 1;
              END IF;
            END LOOP;
            SELECT * INTO part FROM "lockstep".outbox_estimate(slots, groups[i], low::text::xid8, pg_snapshot_xmax(next), c.after_id);
            SELECT INTO total, all_exact, oldest total + part.events, false, least(oldest, part.oldest);
          END LOOP;
        END IF;
        FOR part IN SELECT r.* FROM unnest(part_groups, part_xids) AS p(bucket_group, xid)
                     CROSS JOIN LATERAL "lockstep".outbox_estimate(slots, p.bucket_group, p.xid, p.xid, c.after_id) AS r
                     WHERE pg_visible_in_snapshot(p.xid, next) LOOP
          SELECT INTO total, all_exact, oldest total + part.events, all_exact AND part.exact, least(oldest, part.oldest);
        END LOOP;
      END IF;
      SELECT INTO dispatcher, shard, fence, moved_ms, lag_events, lag_exact, oldest_ms
                  d.name, n, c.fence, (extract(epoch FROM c.moved_at) * 1000), total, all_exact, (extract(epoch FROM oldest) * 1000);
      SELECT count(*) INTO parked FROM "lockstep".outbox_parked p WHERE p.dispatcher = d.name AND p.shard = n;
      RETURN NEXT;
    END LOOP;
  END LOOP;
END
$$;

CREATE FUNCTION lockstep.outbox_stored_bytes(payload json, bytes bytea, headers json) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  SELECT COALESCE(octet_length(bytes), pg_column_size(payload) - 4, 0)::bigint + COALESCE(pg_column_size(headers) - 4, 0)
$$;

CREATE FUNCTION lockstep.outbox_stream(topic text, key text) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
  SELECT encode(substr(sha256(
    convert_to('lockstep', 'UTF8') || decode('006f7574626f7800', 'hex') || convert_to(topic, 'UTF8') || decode('00', 'hex') || convert_to(key, 'UTF8')
  ), 1, 16), 'hex')::uuid
$$;

CREATE FUNCTION lockstep.outbox_stream_lock(stream uuid) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$ SELECT ('x' || encode(substr(uuid_send(stream), 1, 8), 'hex'))::bit(64)::bigint $$;

CREATE FUNCTION lockstep.outbox_take(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, shard_count integer) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  c "lockstep".outbox_cursors;
  here record;
BEGIN
  PERFORM pg_advisory_xact_lock("lockstep".outbox_shard_lock(my_dispatcher, my_shard));
  -- Waits for outbox_remove(), and is waited for by it.
  PERFORM FROM "lockstep".outbox_dispatchers d WHERE d.name = my_dispatcher AND d.shards = shard_count FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN 'removed';
  END IF;
  SELECT * INTO here FROM "lockstep".outbox_here(my_dispatcher);
  IF here.elsewhere THEN
    RETURN 'elsewhere';
  END IF;
  IF here.life IS DISTINCT FROM my_life THEN
    RETURN 'lost';
  END IF;
  FOR try IN 1 .. 10 LOOP
    SELECT * INTO c FROM "lockstep".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1;
    IF c.fence >= my_fence THEN
      RETURN CASE WHEN c.fence = my_fence THEN 'taken' ELSE 'lost' END;
    END IF;
    INSERT INTO "lockstep".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
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

CREATE FUNCTION lockstep.outbox_tick(at_id bigint) RETURNS void
    LANGUAGE plpgsql
    SET jit TO 'off'
    AS $$
DECLARE
  now pg_snapshot := pg_current_snapshot();
  -- After the snapshot.
  written pg_lsn := pg_current_wal_insert_lsn();
  me xid8 := pg_current_xact_id();
  running xid8[] := ARRAY(SELECT x FROM (SELECT pg_snapshot_xip(now) AS x
                                          UNION SELECT me WHERE me < pg_snapshot_xmax(now)) AS r ORDER BY x);
BEGIN
  INSERT INTO "lockstep".outbox_ticks VALUES (
    pg_snapshot_xmax(now), cardinality(running), at_id,
    format('%s:%s:%s', COALESCE(running[1], pg_snapshot_xmax(now)), pg_snapshot_xmax(now), array_to_string(running, ','))::pg_snapshot,
    written);
END
$$;

CREATE FUNCTION lockstep.outbox_unpark(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, topics text[], keys text[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
DECLARE
  gone integer;
BEGIN
  PERFORM pg_advisory_xact_lock_shared("lockstep".outbox_shard_lock(my_dispatcher, my_shard));
  -- Waiting is done here: what is looked at below must not be older than that.
  PERFORM FROM "lockstep".outbox_parked p, unnest(topics, keys) AS g(topic, key)
    WHERE p.dispatcher = my_dispatcher AND p.stream = "lockstep".outbox_stream(g.topic, g.key) FOR UPDATE OF p;
  IF NOT "lockstep".outbox_owns(my_dispatcher, my_shard, my_fence, my_life) THEN
    RETURN 0;
  END IF;
  DELETE FROM "lockstep".outbox_parked p
   USING unnest(topics, keys) AS g(topic, key)
   WHERE p.dispatcher = my_dispatcher AND p.stream = "lockstep".outbox_stream(g.topic, g.key) AND p.state = 'parked'
     AND NOT EXISTS (SELECT FROM "lockstep".outbox_parked_events e
                      WHERE e.dispatcher = p.dispatcher AND e.stream = p.stream AND e.seq > p.sent_seq);
  GET DIAGNOSTICS gone = ROW_COUNT;
  RETURN gone;
END
$$;

CREATE FUNCTION lockstep.outbox_window_parts(slots smallint[], groups smallint[], a pg_snapshot, z pg_snapshot, OUT part_groups smallint[], OUT part_xids xid8[]) RETURNS record
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_sort TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
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
        SELECT e.xid FROM "lockstep".outbox_events e
         WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket_group = s.bucket_group
           AND e.xid > s.xid AND e.xid < pg_snapshot_xmax(z)
         ORDER BY e.bucket_group, e.xid LIMIT 1) AS n
  )
  SELECT array_agg(p.bucket_group), array_agg(p.xid) INTO part_groups, part_xids
    FROM (SELECT g AS bucket_group, x AS xid FROM unnest(groups) AS g CROSS JOIN pg_snapshot_xip(a) AS x WHERE pg_visible_in_snapshot(x, z)
          UNION ALL
          SELECT * FROM (SELECT * FROM steps OFFSET cardinality(groups)) AS found
          LIMIT few + 1) AS p;
  IF cardinality(part_xids) > few THEN
    part_groups := NULL;
    part_xids := NULL;
  END IF;
END
$$;

CREATE TABLE lockstep.rollout (
    prefix text NOT NULL,
    mode text NOT NULL,
    percent integer,
    reason text DEFAULT ''::text NOT NULL,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT rollout_check CHECK (((mode = 'percent'::text) = (percent IS NOT NULL))),
    CONSTRAINT rollout_mode_check CHECK ((mode = ANY (ARRAY['off'::text, 'observe'::text, 'on'::text, 'percent'::text]))),
    CONSTRAINT rollout_percent_check CHECK (((percent >= 0) AND (percent <= 100)))
);

CREATE FUNCTION lockstep.rollout_rules() RETURNS SETOF lockstep.rollout
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$ SELECT * FROM "lockstep".rollout r ORDER BY r.prefix $$;

CREATE FUNCTION lockstep.rollout_set(my_prefix text, my_mode text, my_percent integer, my_reason text) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  INSERT INTO "lockstep".rollout (prefix, mode, percent, reason) VALUES (my_prefix, my_mode, my_percent, my_reason)
      ON CONFLICT (prefix) DO UPDATE
     SET mode = excluded.mode, percent = excluded.percent, reason = excluded.reason, changed_at = clock_timestamp()
$$;

CREATE FUNCTION lockstep.rollout_unset(my_prefix text) RETURNS SETOF text
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$ DELETE FROM "lockstep".rollout r WHERE r.prefix = my_prefix RETURNING r.prefix $$;

CREATE FUNCTION lockstep.schema_version(OUT version integer, OUT compatible_from integer) RETURNS record
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
  SELECT max(m.version), max(m.compatible_from) FROM "lockstep".migrations m
$$;

CREATE TABLE lockstep.epoch (
    one boolean DEFAULT true NOT NULL,
    system bigint NOT NULL,
    database oid NOT NULL,
    timeline bigint NOT NULL,
    timeline_offset bigint NOT NULL,
    CONSTRAINT epoch_one_check CHECK (one)
);

CREATE SEQUENCE lockstep.fences
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    MAXVALUE 1099511627775
    CACHE 1;

CREATE TABLE lockstep.functions (
    name text NOT NULL,
    hash text NOT NULL,
    replaced_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lockstep.idempotency (
    scope text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    fingerprint bytea NOT NULL,
    status integer NOT NULL,
    headers json NOT NULL,
    body bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

CREATE TABLE lockstep.inbox (
    consumer text NOT NULL COLLATE pg_catalog."C",
    topic text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    seq bigint NOT NULL,
    uuid uuid,
    CONSTRAINT inbox_seq_check CHECK ((seq >= 0))
)
WITH (fillfactor='50');

ALTER TABLE lockstep.lease_history ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lockstep.lease_history_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lockstep.lease_waiters (
    place bigint NOT NULL,
    name text NOT NULL,
    token uuid NOT NULL,
    holder text NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

ALTER TABLE lockstep.lease_waiters ALTER COLUMN place ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lockstep.lease_waiters_place_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lockstep.leases (
    name text NOT NULL,
    slot integer NOT NULL,
    permits integer NOT NULL,
    fence bigint NOT NULL,
    token uuid,
    holder text NOT NULL,
    metadata jsonb,
    acquired_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    remembered boolean DEFAULT true NOT NULL,
    CONSTRAINT leases_check CHECK ((permits > slot))
)
WITH (fillfactor='80');

CREATE UNLOGGED TABLE lockstep.lock_names (
    id bigint NOT NULL,
    key text NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lockstep.lock_rows (
    id bigint NOT NULL
);

CREATE TABLE lockstep.lock_trials (
    system bigint NOT NULL,
    route text NOT NULL,
    strategy text NOT NULL,
    pooled boolean NOT NULL,
    connections smallint NOT NULL,
    version integer NOT NULL,
    tried_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lockstep.migrations (
    version integer NOT NULL,
    name text NOT NULL,
    compatible_from integer NOT NULL,
    applied_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lockstep.outbox_audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    by_role text DEFAULT SESSION_USER NOT NULL,
    by_name text DEFAULT NULLIF(current_setting('lockstep.by'::text, true), ''::text),
    by_address inet DEFAULT inet_client_addr(),
    verb text NOT NULL,
    dispatcher text,
    topic text,
    key text,
    seq bigint,
    reason text
);

ALTER TABLE lockstep.outbox_audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME lockstep.outbox_audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE lockstep.outbox_cursors (
    dispatcher text NOT NULL,
    shard smallint NOT NULL,
    version bigint NOT NULL,
    fence bigint NOT NULL,
    prev pg_snapshot NOT NULL,
    next pg_snapshot NOT NULL,
    after_id bigint NOT NULL,
    done boolean NOT NULL,
    seen_id bigint NOT NULL,
    moved_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lockstep.outbox_dead (
    dispatcher text NOT NULL,
    stream uuid NOT NULL,
    seq bigint NOT NULL,
    id bigint NOT NULL,
    uuid uuid NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    payload json,
    bytes bytea,
    headers json,
    reason text,
    died_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lockstep.outbox_dispatchers (
    name text NOT NULL,
    shards smallint NOT NULL,
    system text NOT NULL,
    database text NOT NULL,
    timeline bigint NOT NULL,
    retain_ms bigint DEFAULT 604800000,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

CREATE TABLE lockstep.outbox_events_0 (
    slot smallint NOT NULL,
    id bigint DEFAULT nextval('lockstep.outbox_ids'::regclass) NOT NULL,
    xid xid8 NOT NULL,
    bucket smallint NOT NULL,
    bucket_group smallint NOT NULL,
    stream uuid NOT NULL,
    seq bigint NOT NULL,
    uuid uuid NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    payload json,
    bytes bytea,
    headers json,
    erased boolean DEFAULT false NOT NULL
);

CREATE TABLE lockstep.outbox_events_1 (
    slot smallint NOT NULL,
    id bigint DEFAULT nextval('lockstep.outbox_ids'::regclass) NOT NULL,
    xid xid8 NOT NULL,
    bucket smallint NOT NULL,
    bucket_group smallint NOT NULL,
    stream uuid NOT NULL,
    seq bigint NOT NULL,
    uuid uuid NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    payload json,
    bytes bytea,
    headers json,
    erased boolean DEFAULT false NOT NULL
);

CREATE TABLE lockstep.outbox_events_2 (
    slot smallint NOT NULL,
    id bigint DEFAULT nextval('lockstep.outbox_ids'::regclass) NOT NULL,
    xid xid8 NOT NULL,
    bucket smallint NOT NULL,
    bucket_group smallint NOT NULL,
    stream uuid NOT NULL,
    seq bigint NOT NULL,
    uuid uuid NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    payload json,
    bytes bytea,
    headers json,
    erased boolean DEFAULT false NOT NULL
);

CREATE TABLE lockstep.outbox_events_3 (
    slot smallint NOT NULL,
    id bigint DEFAULT nextval('lockstep.outbox_ids'::regclass) NOT NULL,
    xid xid8 NOT NULL,
    bucket smallint NOT NULL,
    bucket_group smallint NOT NULL,
    stream uuid NOT NULL,
    seq bigint NOT NULL,
    uuid uuid NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    payload json,
    bytes bytea,
    headers json,
    erased boolean DEFAULT false NOT NULL
);

CREATE TABLE lockstep.outbox_events_4 (
    slot smallint NOT NULL,
    id bigint DEFAULT nextval('lockstep.outbox_ids'::regclass) NOT NULL,
    xid xid8 NOT NULL,
    bucket smallint NOT NULL,
    bucket_group smallint NOT NULL,
    stream uuid NOT NULL,
    seq bigint NOT NULL,
    uuid uuid NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    payload json,
    bytes bytea,
    headers json,
    erased boolean DEFAULT false NOT NULL
);

CREATE TABLE lockstep.outbox_events_5 (
    slot smallint NOT NULL,
    id bigint DEFAULT nextval('lockstep.outbox_ids'::regclass) NOT NULL,
    xid xid8 NOT NULL,
    bucket smallint NOT NULL,
    bucket_group smallint NOT NULL,
    stream uuid NOT NULL,
    seq bigint NOT NULL,
    uuid uuid NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    payload json,
    bytes bytea,
    headers json,
    erased boolean DEFAULT false NOT NULL
);

CREATE TABLE lockstep.outbox_events_6 (
    slot smallint NOT NULL,
    id bigint DEFAULT nextval('lockstep.outbox_ids'::regclass) NOT NULL,
    xid xid8 NOT NULL,
    bucket smallint NOT NULL,
    bucket_group smallint NOT NULL,
    stream uuid NOT NULL,
    seq bigint NOT NULL,
    uuid uuid NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    payload json,
    bytes bytea,
    headers json,
    erased boolean DEFAULT false NOT NULL
);

CREATE TABLE lockstep.outbox_events_7 (
    slot smallint NOT NULL,
    id bigint DEFAULT nextval('lockstep.outbox_ids'::regclass) NOT NULL,
    xid xid8 NOT NULL,
    bucket smallint NOT NULL,
    bucket_group smallint NOT NULL,
    stream uuid NOT NULL,
    seq bigint NOT NULL,
    uuid uuid NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    payload json,
    bytes bytea,
    headers json,
    erased boolean DEFAULT false NOT NULL
);

CREATE TABLE lockstep.outbox_home (
    one boolean DEFAULT true NOT NULL,
    system text NOT NULL,
    emptied_id bigint DEFAULT 0 NOT NULL,
    CONSTRAINT outbox_home_one_check CHECK (one)
);

CREATE TABLE lockstep.outbox_parked (
    dispatcher text NOT NULL,
    stream uuid NOT NULL,
    shard smallint NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    state text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    reason text,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    next_attempt_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    sent_seq bigint DEFAULT 0 NOT NULL,
    CONSTRAINT outbox_parked_state_check CHECK ((state = ANY (ARRAY['parked'::text, 'blocked'::text, 'paused'::text])))
);

CREATE TABLE lockstep.outbox_parked_events (
    dispatcher text NOT NULL,
    stream uuid NOT NULL,
    seq bigint NOT NULL,
    id bigint NOT NULL,
    uuid uuid NOT NULL,
    enqueued_at timestamp with time zone NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    payload json,
    bytes bytea,
    headers json,
    tombstone text
);

CREATE TABLE lockstep.outbox_quiet (
    stream uuid NOT NULL,
    topic text NOT NULL,
    key text NOT NULL,
    seq bigint NOT NULL
);

CREATE TABLE lockstep.outbox_segments (
    slot smallint NOT NULL,
    number bigint NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    left_at timestamp with time zone,
    sealed_xid xid8,
    kept_stream uuid,
    last_id bigint,
    kept_at timestamp with time zone
);

CREATE SEQUENCE lockstep.outbox_slot
    AS smallint
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    MAXVALUE 7
    CACHE 1
    CYCLE;

CREATE UNLOGGED TABLE lockstep.outbox_ticks (
    newest xid8 NOT NULL,
    running integer NOT NULL,
    id bigint NOT NULL,
    snapshot pg_snapshot NOT NULL,
    written pg_lsn
);

ALTER TABLE ONLY lockstep.outbox_events ATTACH PARTITION lockstep.outbox_events_0 FOR VALUES IN ('0');

ALTER TABLE ONLY lockstep.outbox_events ATTACH PARTITION lockstep.outbox_events_1 FOR VALUES IN ('1');

ALTER TABLE ONLY lockstep.outbox_events ATTACH PARTITION lockstep.outbox_events_2 FOR VALUES IN ('2');

ALTER TABLE ONLY lockstep.outbox_events ATTACH PARTITION lockstep.outbox_events_3 FOR VALUES IN ('3');

ALTER TABLE ONLY lockstep.outbox_events ATTACH PARTITION lockstep.outbox_events_4 FOR VALUES IN ('4');

ALTER TABLE ONLY lockstep.outbox_events ATTACH PARTITION lockstep.outbox_events_5 FOR VALUES IN ('5');

ALTER TABLE ONLY lockstep.outbox_events ATTACH PARTITION lockstep.outbox_events_6 FOR VALUES IN ('6');

ALTER TABLE ONLY lockstep.outbox_events ATTACH PARTITION lockstep.outbox_events_7 FOR VALUES IN ('7');

INSERT INTO lockstep.epoch VALUES (true, 7709638902553204185, 5, 1, 0);

INSERT INTO lockstep.functions VALUES ('current_incarnation', 'a9ce81d8df4a615816c64f249c463fee9b1458d90d3b3a9256f89547a26b2afe', '2026-11-18 22:16:38.64123+00');
INSERT INTO lockstep.functions VALUES ('enqueue', '4222c7f95ea3bf2b714187f014cc0fc0947b3d0c0412692118a08857a6a78ef6', '2026-11-18 22:16:38.641336+00');
INSERT INTO lockstep.functions VALUES ('enqueue_bytes', 'b0f8f9739cf4ccb25965f07de0e4f98e2077862f5608e848e9bd4015f489af40', '2026-11-18 22:16:38.641344+00');
INSERT INTO lockstep.functions VALUES ('ensure_incarnation', '5e5498e4bd42b36413e857c7ef37852e7fff2398fc14525d3924cb66649800d9', '2026-11-18 22:16:38.641347+00');
INSERT INTO lockstep.functions VALUES ('foreign_lock_holders', 'c1433cb20032c2ae136c3cb057a1a035ef30dc558bfefd3cfd8be4f3e90b7ea5', '2026-11-18 22:16:38.641349+00');
INSERT INTO lockstep.functions VALUES ('idempotency_clean_up', 'd0e7ac8efeb2a35652e23692e9992cd1dbd954b6b8e23eaf8914329b21a25b97', '2026-11-18 22:16:38.641355+00');
INSERT INTO lockstep.functions VALUES ('idempotency_keep', 'bfdf99ad016d24acc0dab8fce5a9acc64561e7a02bd5eba913b2403b90f79f69', '2026-11-18 22:16:38.641357+00');
INSERT INTO lockstep.functions VALUES ('idempotency_look', 'ff389a9ef26821f604dce9693149e1ff3eef938aee3ee843d3ce4b69df9fc2a7', '2026-11-18 22:16:38.641359+00');
INSERT INTO lockstep.functions VALUES ('inbox_accept', '11434f7e9b7f32efc7b9fd8d40fc86e05d7241f2f314327a1439750588112f83', '2026-11-18 22:16:38.641362+00');
INSERT INTO lockstep.functions VALUES ('inbox_accept_runs', 'c24e096c07712d0a3a3f1fd84874f6345576480eb2a4aae2e9ce3872407dd256', '2026-11-18 22:16:38.641364+00');
INSERT INTO lockstep.functions VALUES ('inbox_position', '5caa6714307c5284ce07acc3b29496ef2f719baa8560793a7677fd68289c070d', '2026-11-18 22:16:38.641367+00');
INSERT INTO lockstep.functions VALUES ('inbox_start', 'ddcdc68971c7b940d53c93fc17e6d166805864b7b8b315854fd58ce98a9264ca', '2026-11-18 22:16:38.641369+00');
INSERT INTO lockstep.functions VALUES ('lease_clean_up', '3ba72423f7fb1f99fd0920dc8fa03b86840dc324a190dfcf0c9240f6af76e237', '2026-11-18 22:16:38.641372+00');
INSERT INTO lockstep.functions VALUES ('lease_counts', '35e4622ab71389565b8afc5dfc3b2d726b7822748d2de628ef0bf713d473b8a4', '2026-11-18 22:16:38.641374+00');
INSERT INTO lockstep.functions VALUES ('lease_endings', 'a9664c57b2f9e759e2339d3b531179659ac73d825acbca01e46c628159ebbc41', '2026-11-18 22:16:38.641376+00');
INSERT INTO lockstep.functions VALUES ('lease_force_release', 'd89cc4d6b626f2dc62bb26368475f2fb0440f53720eee85d679f74fd33ba553d', '2026-11-18 22:16:38.641378+00');
INSERT INTO lockstep.functions VALUES ('lease_guard', 'bb05a2b211ed85b12c33bfeab41f89baea8f7cbba0223087db0a9e81f5ef7042', '2026-11-18 22:16:38.641381+00');
INSERT INTO lockstep.functions VALUES ('lease_holders', 'a2f76ea7bd44c32bc4c35def2664f46dff268a5b169badd06d3aae1924841470', '2026-11-18 22:16:38.641382+00');
INSERT INTO lockstep.functions VALUES ('lease_leave', '8425b2a272e576b7f386abbef27cf87eeb3e67ec08716292eb74c1bd5a3baec8', '2026-11-18 22:16:38.641385+00');
INSERT INTO lockstep.functions VALUES ('lease_look', 'a2eb2e6674c290a3e5585a40a4dbdeff1773a16e965e9ee323702a9968e0af4a', '2026-11-18 22:16:38.641387+00');
INSERT INTO lockstep.functions VALUES ('lease_queue', '533a8e14186e09c548ebd498256c986efbfd147c3e6f80e03cd9485ea57a1570', '2026-11-18 22:16:38.641392+00');
INSERT INTO lockstep.functions VALUES ('lease_release', '185722a4bb594ce2aa9e3d10da1908bcb073ef8be3d13bc59e48a5a8e2247905', '2026-11-18 22:16:38.641394+00');
INSERT INTO lockstep.functions VALUES ('lease_renew', '2ed15f5b14da277406225965675c0c86cd68011b11ee5671030bbe15f4a0c092', '2026-11-18 22:16:38.641397+00');
INSERT INTO lockstep.functions VALUES ('lease_take', '9e3e8791625fecaac25aad75634aaae006954cbb1399ad0ef153802af617a45f', '2026-11-18 22:16:38.641399+00');
INSERT INTO lockstep.functions VALUES ('lease_wait', 'a825ef5171b9d2e735261e4720072e5e7d074f03cc1be8b9e892ef919ec63e13', '2026-11-18 22:16:38.641401+00');
INSERT INTO lockstep.functions VALUES ('lease_wake', '8ca2de667d3e097aa0dc8253dc967250dfcbb041eefef3279b633558d458f66e', '2026-11-18 22:16:38.641403+00');
INSERT INTO lockstep.functions VALUES ('lock_id', '0f73fac54f142d6bd68f7a432feffcc99133da41ad934672bfe9a9964abef763', '2026-11-18 22:16:38.641405+00');
INSERT INTO lockstep.functions VALUES ('lock_names_of', '580fa64b0cde7c9081f3096fab6683d3660fa45ee69b6faffca2f05a92c08aba', '2026-11-18 22:16:38.641407+00');
INSERT INTO lockstep.functions VALUES ('lock_names_record', '53fa4d9a1eea2e509d561e59a68da2a7f4a5718014fa1487045d60edecb979c6', '2026-11-18 22:16:38.641409+00');
INSERT INTO lockstep.functions VALUES ('lock_names_trim', 'c99c8282f62e4130ba0c1c5923aebfcb61cd02c5156bede50ff8942c2ac9d197', '2026-11-18 22:16:38.641411+00');
INSERT INTO lockstep.functions VALUES ('lock_row_try', '15252ac55383d1daf9ec6408f5158b8efd7b3bac75a9598d1016ce4e9f229996', '2026-11-18 22:16:38.641414+00');
INSERT INTO lockstep.functions VALUES ('lock_row_wait', 'b5d707af54fa81891bbe2de71c07df4ebc39ccbc2b9548fc2cb16ced7bfb4405', '2026-11-18 22:16:38.641416+00');
INSERT INTO lockstep.functions VALUES ('lock_rows_existing', '33292cd0654241615e7ab56ef8a15f249a7660f43084fe5639051f1d81e65651', '2026-11-18 22:16:38.641418+00');
INSERT INTO lockstep.functions VALUES ('lock_trials_forget', '79fd786c882952774a93dcd9d3115b9970128553b33bca232aed53b090a92307', '2026-11-18 22:16:38.641421+00');
INSERT INTO lockstep.functions VALUES ('lock_trials_known', 'b97ea5457140a18e1c70076d975180d8dc1dc29354d341f4e2adc30ead9162ee', '2026-11-18 22:16:38.641423+00');
INSERT INTO lockstep.functions VALUES ('lock_trials_remember', '8d638337917763fff64066e9f4b4c96ce344ecd409b7814d959d7cc702e2a3c8', '2026-11-18 22:16:38.641426+00');
INSERT INTO lockstep.functions VALUES ('next_fence', '6a67df34db89377116ac81f16cf98aa4159cb02adaecae0df3065984747cf934', '2026-11-18 22:16:38.64143+00');
INSERT INTO lockstep.functions VALUES ('outbox_advance', '72220f75daf3fa2cca2c0c1ea8f617b5e73f45c0d9e4843119e2bdcc8ad03338', '2026-11-18 22:16:38.641433+00');
INSERT INTO lockstep.functions VALUES ('outbox_append', '8bf47aeec42f06599241476fdd5d0dc322f089eaaf4d99b3b0a0eae0ca5b9fcc', '2026-11-18 22:16:38.641435+00');
INSERT INTO lockstep.functions VALUES ('outbox_append_many', 'ee69144bd9b3ce31909d005371e3dfc688dcef48fe2a8ac2847a7323ffbbb2af', '2026-11-18 22:16:38.641437+00');
INSERT INTO lockstep.functions VALUES ('outbox_bucket', 'b1d55a46079f7f083b0c04f3173c90c4c372ce8869fa7e75e80a06f045ca37be', '2026-11-18 22:16:38.64144+00');
INSERT INTO lockstep.functions VALUES ('outbox_check_headers', '37b41d47919ab5ec22b60df5a50c6996a07aa392f8ae8d241f3d25faf4ae3574', '2026-11-18 22:16:38.641442+00');
INSERT INTO lockstep.functions VALUES ('outbox_check_names', '65d4d6d400c4a0a71f06793b5e0701f62b22029c56ce654dd897e44a25185cc7', '2026-11-18 22:16:38.641444+00');
INSERT INTO lockstep.functions VALUES ('outbox_dispatcher_names', '0f00a93091e7ca6ae77f38d94e8b1e8c2e54ca8966f28c0bf12e6824d3385859', '2026-11-18 22:16:38.641447+00');
INSERT INTO lockstep.functions VALUES ('outbox_drop', '93fb7bed734a0cc451f9e001a82a04416bcea15f5b332e03f6cb19f66da31d6d', '2026-11-18 22:16:38.64145+00');
INSERT INTO lockstep.functions VALUES ('outbox_emptied', '7a4d772b544918c82d6331e58943d3efdaeb542e4fa1acab1be527ec407fb052', '2026-11-18 22:16:38.641452+00');
INSERT INTO lockstep.functions VALUES ('outbox_erase', '815cbb245d4c0c3fd129d9ecaed377e30b138695949541aa7f76e0ca71176bf2', '2026-11-18 22:16:38.641454+00');
INSERT INTO lockstep.functions VALUES ('outbox_estimate', 'b84ac55cd2c001878d129d57809fd5d995d6b707396fbb50b76128d8dce24902', '2026-11-18 22:16:38.641456+00');
INSERT INTO lockstep.functions VALUES ('outbox_flush', '9bba3e7d1bf670e97a29ef73d42914c086178fb505dca1d9d239e6209317f41d', '2026-11-18 22:16:38.641458+00');
INSERT INTO lockstep.functions VALUES ('outbox_forget_xids', '1348571011010a7d5a43e729cf28588de1bc3ec7d83bfa7f2ee79f66f89b73b9', '2026-11-18 22:16:38.641461+00');
INSERT INTO lockstep.functions VALUES ('outbox_group', '4e10e7e595bf6563df4dff6213fcb51c8f4b5612c53e5866f3ecdc33724a74e6', '2026-11-18 22:16:38.641463+00');
INSERT INTO lockstep.functions VALUES ('outbox_group_lock', 'd43eb5a2d333cd9af492dc87a29005cfb631c67f7dcfa8e32c1a91e56efbef94', '2026-11-18 22:16:38.641467+00');
INSERT INTO lockstep.functions VALUES ('outbox_halt', 'f5c581ca279e78a2cf57baa853ad86def9066f174a22e87a62a50b4bd2ec0686', '2026-11-18 22:16:38.641469+00');
INSERT INTO lockstep.functions VALUES ('outbox_head', '64a2015bf968280373b3c88b7f17da68e13f9fbd047e07388bd6b23e57a04021', '2026-11-18 22:16:38.641472+00');
INSERT INTO lockstep.functions VALUES ('outbox_here', '566fc528af081790a2739cf700d8dfd0f6682ff6b1665b4f27295bfdadbc034a', '2026-11-18 22:16:38.641474+00');
INSERT INTO lockstep.functions VALUES ('outbox_keep', 'a0ef521b9868a94b517c22b1e7cfd8ec7dbf502d16c9e809ceef21cbae6f7f54', '2026-11-18 22:16:38.641476+00');
INSERT INTO lockstep.functions VALUES ('outbox_last', '27d44b6a0064e36f83f32c7fedf968a97e688c7d7f5127db8e3e7f36b638ee5e', '2026-11-18 22:16:38.641478+00');
INSERT INTO lockstep.functions VALUES ('outbox_lock', 'c456392e4a7a782707652d1013ac1673651819516158476d507cc6d3c2edccb1', '2026-11-18 22:16:38.64148+00');
INSERT INTO lockstep.functions VALUES ('outbox_lock_streams', '0b184470d9d3afd5d01e92f1d97b82db99503e1727a3a2743fda021c8e66670c', '2026-11-18 22:16:38.641482+00');
INSERT INTO lockstep.functions VALUES ('outbox_max_event_bytes', '4a2a001854ca4e04d4ab94dfbb9a0d3bdbdfd812af4b6bb2d79acb38c4f529e3', '2026-11-18 22:16:38.641484+00');
INSERT INTO lockstep.functions VALUES ('outbox_move', 'adf52d9246b7f8a15bfe68d5bb274cfb74727654a1190698c3015e260cb69808', '2026-11-18 22:16:38.641487+00');
INSERT INTO lockstep.functions VALUES ('outbox_operate', '37a8e125a2b4e5559300c267e397c3071645e2cbb4749991f6f3c07319758906', '2026-11-18 22:16:38.641489+00');
INSERT INTO lockstep.functions VALUES ('outbox_owns', '54be2b4fb1a77771d15fde6c4813875359e240a1ce497bcddfb0aad610cccced', '2026-11-18 22:16:38.641491+00');
INSERT INTO lockstep.functions VALUES ('outbox_parked_due', 'ee6397d5c68b40e3c1307744c359bcabc2f545119ec9a4aa442c8f95b60d4999', '2026-11-18 22:16:38.641493+00');
INSERT INTO lockstep.functions VALUES ('outbox_parked_list', 'a733dba7995e1b248dd7deee19d3d3b90bfb121524fef58b8733f99d7e0614c6', '2026-11-18 22:16:38.641495+00');
INSERT INTO lockstep.functions VALUES ('outbox_parked_tried', '238997b5b271b849217c01fdb2aadff873cac4d8089589e1da72878c1598a9d6', '2026-11-18 22:16:38.641498+00');
INSERT INTO lockstep.functions VALUES ('outbox_passed', '0617fcee1e619bb491b48e9671a44a8b47f9b7bce966377fed8e98889740a87e', '2026-11-18 22:16:38.641502+00');
INSERT INTO lockstep.functions VALUES ('outbox_plain_headers', 'bcf0074f5e372adf54c8ea2acba0da3506aa482a6a0d6e92606219d4711a1c89', '2026-11-18 22:16:38.641504+00');
INSERT INTO lockstep.functions VALUES ('outbox_position', '33a07a38104027093dfba95937269ad1f6483dc52e7624ba6fb93163ceb38f17', '2026-11-18 22:16:38.641507+00');
INSERT INTO lockstep.functions VALUES ('outbox_prepare_segment', '581b5378ec6500bacb477e28ab6577cd424e9d7b176f255e64827be5106d0ba1', '2026-11-18 22:16:38.64159+00');
INSERT INTO lockstep.functions VALUES ('outbox_read', '5598591588568c4bff139e77381e10d133f713e3a1b7cc5fec06170fa83edaea', '2026-11-18 22:16:38.641593+00');
INSERT INTO lockstep.functions VALUES ('outbox_rebase', '12c1078aefee67b9064dde389b0384f0e7ab51f6214f565e070f162a002eb94c', '2026-11-18 22:16:38.641595+00');
INSERT INTO lockstep.functions VALUES ('outbox_refuse_isolation', 'ebb933847a2b6a3caabb79ee5cd4ae880b489d3664e5aa812dacdbd0e5d75067', '2026-11-18 22:16:38.641597+00');
INSERT INTO lockstep.functions VALUES ('outbox_refuse_payload', 'a18344ad0cd09a0a1dd026c7d9b89354fbf671a57891d04cf1d3c76b82527a65', '2026-11-18 22:16:38.641599+00');
INSERT INTO lockstep.functions VALUES ('outbox_register', '22ee839cbdb3d06b8156fed6efa32164805316772e9a34e3af039786ced2eb57', '2026-11-18 22:16:38.641602+00');
INSERT INTO lockstep.functions VALUES ('outbox_remove', 'd9d13ecfb98d7c6e4b99ba7327dc1bc8794e907adc293a3d7aa5d2ff5270bdfd', '2026-11-18 22:16:38.641604+00');
INSERT INTO lockstep.functions VALUES ('outbox_replay_after', 'c587ca94ea183511cddd73e31ecb76577610430bb03dddec8cdda014f4466d87', '2026-11-18 22:16:38.641606+00');
INSERT INTO lockstep.functions VALUES ('outbox_replay_stream', '9d757b0d07e2cdebeb9ecce8a22d25e98e8b5c53dd2e412dd6e7064d3eefb16d', '2026-11-18 22:16:38.641608+00');
INSERT INTO lockstep.functions VALUES ('outbox_replicated', 'cafc3fbd54cb3eca548ed93563271d2750b06a6ddde6d19ee67e5f08a91b7f3b', '2026-11-18 22:16:38.64161+00');
INSERT INTO lockstep.functions VALUES ('outbox_retention', '4fb703f2ecbf063f98624161ccd6bbbeff0b3ba09afb3a39d8ff15ab03926461', '2026-11-18 22:16:38.641612+00');
INSERT INTO lockstep.functions VALUES ('outbox_rotate', '8bd50f1da0e375db940bcd0ed2cba8d0bee55e8575c114348fcc33d22bed68c9', '2026-11-18 22:16:38.641614+00');
INSERT INTO lockstep.functions VALUES ('outbox_running', '6428724eef17084693f47874d4d81231f7d76df69cdbe83609e2538317a10823', '2026-11-18 22:16:38.641619+00');
INSERT INTO lockstep.functions VALUES ('outbox_seal', '6fe92e887d98531ca164d7e065fd542576608c1ca483ee64480e0af45537c5e4', '2026-11-18 22:16:38.641621+00');
INSERT INTO lockstep.functions VALUES ('outbox_segment_list', '609becbe45c41bd3ed473d7f5e65593f9a8b4cc15874dfbf45bbceb09fcaecf0', '2026-11-18 22:16:38.641624+00');
INSERT INTO lockstep.functions VALUES ('outbox_shard', '41114a4f3be42d2d34a9e58922633a652c5753b63de74a144adb94f057ddf054', '2026-11-18 22:16:38.641626+00');
INSERT INTO lockstep.functions VALUES ('outbox_shard_lock', '76d79b33782f6d5982f774ef70c7fc8a514770973e75540bc209795926675cd4', '2026-11-18 22:16:38.641628+00');
INSERT INTO lockstep.functions VALUES ('outbox_status', '9b9a9ab3f968e981aa958d6eaa6fdea9b3f4ddf04297a18eb503690b36dabfef', '2026-11-18 22:16:38.64163+00');
INSERT INTO lockstep.functions VALUES ('outbox_stored_bytes', 'ec254a98c2dfcfc3b7127e077e4ccde95a248f8e08cfb1d92e54dbbe24d829d6', '2026-11-18 22:16:38.641633+00');
INSERT INTO lockstep.functions VALUES ('outbox_stream', 'd721d8b9dfa7a1bf6049a951e30bf1ca56e5677f970750f8116fac075bf697da', '2026-11-18 22:16:38.641635+00');
INSERT INTO lockstep.functions VALUES ('outbox_stream_lock', '5976d3bb4b2ee94286ce1c7742f86f1e2547b9dde143c3073337ae5ceabc85ce', '2026-11-18 22:16:38.641637+00');
INSERT INTO lockstep.functions VALUES ('outbox_take', '74eb09a5032239b17a03c34b649c8ba3f6e3e8f65667a85d9c32af61f79fa44c', '2026-11-18 22:16:38.641639+00');
INSERT INTO lockstep.functions VALUES ('outbox_tick', '514a5b1119c52ca1797c1adee99737ad09c612c242d0afde47d28ff280729bc1', '2026-11-18 22:16:38.641642+00');
INSERT INTO lockstep.functions VALUES ('outbox_unpark', '776092af3cd580713b7f89aedebb57203ae9324ecb1f69dd3d792b21b33c8340', '2026-11-18 22:16:38.641644+00');
INSERT INTO lockstep.functions VALUES ('outbox_window_parts', '49823ed269a20f2986ed741555f695f99827106c4f1d7d7710d19f02a57ef9b8', '2026-11-18 22:16:38.641646+00');
INSERT INTO lockstep.functions VALUES ('rollout_rules', 'afd944d711f7a96f7c0ff725e20c18f29615c1bf76014b47fe685958cabf1402', '2026-11-18 22:16:38.641648+00');
INSERT INTO lockstep.functions VALUES ('rollout_set', '500dd0fdc22b45ddf368c5315f4f1c18ca49c075ba7d67085756b98e5fcfbb97', '2026-11-18 22:16:38.64165+00');
INSERT INTO lockstep.functions VALUES ('rollout_unset', '3760e2ea49630f121c97f745d6bc9f9aa8b1bebd7dcd88c8d744adaf09b05134', '2026-11-18 22:16:38.641654+00');
INSERT INTO lockstep.functions VALUES ('schema_version', '14b5935a3d0584491855cf0abee556ed850b6dea3176fbcce8650c146cb2ab14', '2026-11-18 22:16:38.641657+00');

INSERT INTO lockstep.idempotency VALUES ('dump', 'dumped-1', '\x07feae3a3f757816741856f1261c413493d26bc3a946a806085d1174928d61f2', 201, '[["content-type","application/json"]]', '\x7b22616e737765726564223a226279207468652070726576696f75732072656c65617365227d', '2026-11-18 22:16:47.873132+00', '2999-01-01 00:00:00+00');

INSERT INTO lockstep.inbox VALUES ('dumped', 'dumped', 'b', 3, '336e9e47-c22c-46d1-ada0-0f721d85903c');
INSERT INTO lockstep.inbox VALUES ('dumped', 'dumped', 'a', 3, '859d3f02-f318-4cf0-a27d-ed13d054fadb');

INSERT INTO lockstep.incarnation VALUES (true, 'd6840f7c-1430-41ee-abfd-2d4a71a9e60d', 1, '00000001', 7709638902553204185, 5, '2026-11-18 22:16:39.269247+00');

INSERT INTO lockstep.lease_history OVERRIDING SYSTEM VALUE VALUES (1, 'Dumped:released', 0, 1158862227046, 'vm:9316', '{"from": "the previous release"}', '2026-11-18 22:16:46.120436+00', '2026-11-18 22:16:46.661532+00', 'released', NULL, NULL);

INSERT INTO lockstep.leases VALUES ('Dumped:released', 0, 1, 1158862227046, NULL, 'vm:9316', '{"from": "the previous release"}', '2026-11-18 22:16:46.120436+00', '2026-11-18 22:16:46.651582+00', true);
INSERT INTO lockstep.leases VALUES ('Dumped:abandoned', 0, 1, 1158862227047, 'ca02b378-7681-4154-b92a-8b3442a5b388', 'vm:9316', NULL, '2026-11-18 22:16:46.771118+00', '2026-11-18 22:16:48.518002+00', true);
INSERT INTO lockstep.leases VALUES ('Outbox:default:shard:1', 0, 1, 1158862227050, NULL, 'vm:9316', NULL, '2026-11-18 22:16:51.074606+00', '2026-11-18 22:17:03.024141+00', false);
INSERT INTO lockstep.leases VALUES ('Outbox:default:shard:0', 0, 1, 1158862227049, NULL, 'vm:9316', NULL, '2026-11-18 22:16:50.431521+00', '2026-11-18 22:17:03.032267+00', false);
INSERT INTO lockstep.leases VALUES ('Outbox:default:member:c6d7309e-5a86-41ae-afb8-65c6f32866eb', 0, 1, 1158862227048, NULL, 'vm:9316', NULL, '2026-11-18 22:16:49.600248+00', '2026-11-18 22:17:03.131318+00', false);

INSERT INTO lockstep.lock_names VALUES (6257585397006673367, 'Dumped:locked', '2026-11-18 22:16:44.392042+00');
INSERT INTO lockstep.lock_names VALUES (-8684269701578052151, 'Idempotency:9531146063713e9a0d5ab5e1c30f60616b9839ff310a159addf2c4693b269d81', '2026-11-18 22:16:48.079516+00');

INSERT INTO lockstep.lock_rows VALUES (6257585397006673367);

INSERT INTO lockstep.lock_trials VALUES (7709638902553204185, '127.0.0.1:25911/postgres on vm', 'advisory', false, 2, 1, '2026-11-18 22:16:43.322195+00');
INSERT INTO lockstep.lock_trials VALUES (7709638902553204185, '127.0.0.1:25911/postgres on vm', 'table', false, 2, 1, '2026-11-18 22:16:45.513+00');

INSERT INTO lockstep.migrations VALUES (1, 'server_epoch', 1, '2026-11-18 22:16:36.819457+00');
INSERT INTO lockstep.migrations VALUES (2, 'locks', 1, '2026-11-18 22:16:36.84713+00');
INSERT INTO lockstep.migrations VALUES (3, 'leases', 1, '2026-11-18 22:16:36.882497+00');
INSERT INTO lockstep.migrations VALUES (4, 'idempotency', 1, '2026-11-18 22:16:36.96224+00');
INSERT INTO lockstep.migrations VALUES (5, 'outbox', 1, '2026-11-18 22:16:37.424902+00');
INSERT INTO lockstep.migrations VALUES (6, 'inbox', 1, '2026-11-18 22:16:37.905335+00');

INSERT INTO lockstep.outbox_cursors VALUES ('default', 0, 1, 1158862227049, '1:1:', '1:1:', 0, true, 0, '2026-11-18 22:16:50.787928+00');
INSERT INTO lockstep.outbox_cursors VALUES ('default', 1, 1, 1158862227050, '1:1:', '1:1:', 0, true, 0, '2026-11-18 22:16:51.203058+00');
INSERT INTO lockstep.outbox_cursors VALUES ('default', 1, 2, 1158862227050, '1:1:', '758:758:', 8, true, 9, '2026-11-18 22:16:54.429196+00');
INSERT INTO lockstep.outbox_cursors VALUES ('default', 0, 2, 1158862227049, '1:1:', '758:758:', 9, true, 9, '2026-11-18 22:16:54.448866+00');

INSERT INTO lockstep.outbox_dispatchers VALUES ('default', 2, '7709638902553204185', '5', 1, NULL, '2026-11-18 22:16:49.509234+00');

INSERT INTO lockstep.outbox_events_0 VALUES (0, 1, '749', 283, 17, 'a52b613b-591b-68bf-1eca-2099eb14f91b', 1, '3a13d5ec-269c-48ed-9015-2d2de7ee4c97', '2026-11-18 22:16:48.685817+00', 'dumped', 'a', NULL, '\x0001feff', '{"trace-id":"dumped"}', false);
INSERT INTO lockstep.outbox_events_0 VALUES (0, 2, '749', 694, 43, '0c0c5483-ff25-1af1-7b45-590f84b6f2b6', 1, '90f64bce-fa1c-44c3-977a-e78be36eb6a3', '2026-11-18 22:16:48.686266+00', 'dumped', 'b', NULL, '\x0001feff', '{"trace-id":"dumped"}', false);
INSERT INTO lockstep.outbox_events_0 VALUES (0, 3, '749', 319, 19, '4a11e7fa-2b06-b25c-8e10-972dc148b53f', 1, '535511f6-9112-4ebe-9a36-115ebe39c7fe', '2026-11-18 22:16:48.686317+00', 'dumped', 'blocked', NULL, '\x0001feff', '{"trace-id":"dumped"}', false);
INSERT INTO lockstep.outbox_events_0 VALUES (0, 4, '750', 283, 17, 'a52b613b-591b-68bf-1eca-2099eb14f91b', 2, 'f509f647-228b-4322-a068-38d20276a7b6', '2026-11-18 22:16:48.898677+00', 'dumped', 'a', '{"number":2}', NULL, '{"trace-id":"dumped"}', false);
INSERT INTO lockstep.outbox_events_0 VALUES (0, 5, '750', 694, 43, '0c0c5483-ff25-1af1-7b45-590f84b6f2b6', 2, 'a6558078-a625-4dbb-b667-5fa59e21d80a', '2026-11-18 22:16:48.898779+00', 'dumped', 'b', '{"number":2}', NULL, '{"trace-id":"dumped"}', false);
INSERT INTO lockstep.outbox_events_0 VALUES (0, 6, '750', 319, 19, '4a11e7fa-2b06-b25c-8e10-972dc148b53f', 2, '0ab17fc9-43af-484c-a502-5be281c53b93', '2026-11-18 22:16:48.898787+00', 'dumped', 'blocked', '{"number":2}', NULL, '{"trace-id":"dumped"}', false);
INSERT INTO lockstep.outbox_events_0 VALUES (0, 7, '751', 283, 17, 'a52b613b-591b-68bf-1eca-2099eb14f91b', 3, '859d3f02-f318-4cf0-a27d-ed13d054fadb', '2026-11-18 22:16:49.205906+00', 'dumped', 'a', '{"number":3}', NULL, '{"trace-id":"dumped"}', false);
INSERT INTO lockstep.outbox_events_0 VALUES (0, 8, '751', 694, 43, '0c0c5483-ff25-1af1-7b45-590f84b6f2b6', 3, '336e9e47-c22c-46d1-ada0-0f721d85903c', '2026-11-18 22:16:49.205976+00', 'dumped', 'b', '{"number":3}', NULL, '{"trace-id":"dumped"}', false);
INSERT INTO lockstep.outbox_events_0 VALUES (0, 9, '751', 319, 19, '4a11e7fa-2b06-b25c-8e10-972dc148b53f', 3, 'a13b11e8-0bc9-4b2f-8dd2-a1c5d94a5c05', '2026-11-18 22:16:49.205986+00', 'dumped', 'blocked', '{"number":3}', NULL, '{"trace-id":"dumped"}', false);
INSERT INTO lockstep.outbox_events_0 VALUES (0, 10, '779', 283, 17, 'a52b613b-591b-68bf-1eca-2099eb14f91b', 4, '2db2e8f9-bcda-4f12-88bf-42ddd5465294', '2026-11-18 22:17:03.20195+00', 'dumped', 'a', '{"number":4}', NULL, '{"trace-id":"dumped"}', false);
INSERT INTO lockstep.outbox_events_0 VALUES (0, 11, '779', 694, 43, '0c0c5483-ff25-1af1-7b45-590f84b6f2b6', 4, 'a4ac08ae-e90c-4c1b-bed1-8140be7985a2', '2026-11-18 22:17:03.216337+00', 'dumped', 'b', '{"number":4}', NULL, '{"trace-id":"dumped"}', false);
INSERT INTO lockstep.outbox_events_0 VALUES (0, 12, '779', 319, 19, '4a11e7fa-2b06-b25c-8e10-972dc148b53f', 4, 'e94fab4a-36f8-4aa1-8e10-3771a0adc16e', '2026-11-18 22:17:03.216369+00', 'dumped', 'blocked', '{"number":4}', NULL, '{"trace-id":"dumped"}', false);

INSERT INTO lockstep.outbox_home VALUES (true, '7709638902553204185', 0);

INSERT INTO lockstep.outbox_parked VALUES ('default', '4a11e7fa-2b06-b25c-8e10-972dc148b53f', 0, 'dumped', 'blocked', 'blocked', 5, 'refused for the dump', '2026-11-18 22:16:54.449562+00', '2026-11-18 22:17:07.369638+00', 0);

INSERT INTO lockstep.outbox_parked_events VALUES ('default', '4a11e7fa-2b06-b25c-8e10-972dc148b53f', 1, 3, '535511f6-9112-4ebe-9a36-115ebe39c7fe', '2026-11-18 22:16:48.686317+00', 'dumped', 'blocked', NULL, '\x0001feff', '{"trace-id":"dumped"}', NULL);
INSERT INTO lockstep.outbox_parked_events VALUES ('default', '4a11e7fa-2b06-b25c-8e10-972dc148b53f', 2, 6, '0ab17fc9-43af-484c-a502-5be281c53b93', '2026-11-18 22:16:48.898787+00', 'dumped', 'blocked', '{"number":2}', NULL, '{"trace-id":"dumped"}', NULL);
INSERT INTO lockstep.outbox_parked_events VALUES ('default', '4a11e7fa-2b06-b25c-8e10-972dc148b53f', 3, 9, 'a13b11e8-0bc9-4b2f-8dd2-a1c5d94a5c05', '2026-11-18 22:16:49.205986+00', 'dumped', 'blocked', '{"number":3}', NULL, '{"trace-id":"dumped"}', NULL);

INSERT INTO lockstep.outbox_segments VALUES (0, 1, '2026-11-18 22:16:37.199489+00', NULL, NULL, NULL, NULL, NULL);

INSERT INTO lockstep.rollout VALUES ('DumpedOff', 'off', NULL, '', '2026-11-18 22:16:46.094348+00');

SELECT pg_catalog.setval('lockstep.fences', 59350599274, true);

SELECT pg_catalog.setval('lockstep.lease_history_id_seq', 1, true);

SELECT pg_catalog.setval('lockstep.lease_waiters_place_seq', 1, false);

SELECT pg_catalog.setval('lockstep.outbox_audit_id_seq', 1, false);

SELECT pg_catalog.setval('lockstep.outbox_ids', 12, true);

SELECT pg_catalog.setval('lockstep.outbox_slot', 0, false);

ALTER TABLE ONLY lockstep.epoch
    ADD CONSTRAINT epoch_pkey PRIMARY KEY (one);

ALTER TABLE ONLY lockstep.functions
    ADD CONSTRAINT functions_pkey PRIMARY KEY (name);

ALTER TABLE ONLY lockstep.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (scope, key);

ALTER TABLE ONLY lockstep.inbox
    ADD CONSTRAINT inbox_pkey PRIMARY KEY (consumer, topic, key);

ALTER TABLE ONLY lockstep.incarnation
    ADD CONSTRAINT incarnation_pkey PRIMARY KEY (one);

ALTER TABLE ONLY lockstep.lease_history
    ADD CONSTRAINT lease_history_pkey PRIMARY KEY (id);

ALTER TABLE ONLY lockstep.lease_waiters
    ADD CONSTRAINT lease_waiters_pkey PRIMARY KEY (place);

ALTER TABLE ONLY lockstep.lease_waiters
    ADD CONSTRAINT lease_waiters_token_key UNIQUE (token);

ALTER TABLE ONLY lockstep.leases
    ADD CONSTRAINT leases_name_fence_key UNIQUE (name, fence);

ALTER TABLE ONLY lockstep.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (name, slot);

ALTER TABLE ONLY lockstep.lock_names
    ADD CONSTRAINT lock_names_pkey PRIMARY KEY (id);

ALTER TABLE ONLY lockstep.lock_rows
    ADD CONSTRAINT lock_rows_pkey PRIMARY KEY (id);

ALTER TABLE ONLY lockstep.lock_trials
    ADD CONSTRAINT lock_trials_pkey PRIMARY KEY (system, route, strategy, pooled);

ALTER TABLE ONLY lockstep.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY lockstep.outbox_audit
    ADD CONSTRAINT outbox_audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY lockstep.outbox_cursors
    ADD CONSTRAINT outbox_cursors_pkey PRIMARY KEY (dispatcher, shard, version);

ALTER TABLE ONLY lockstep.outbox_dead
    ADD CONSTRAINT outbox_dead_pkey PRIMARY KEY (dispatcher, stream, seq);

ALTER TABLE ONLY lockstep.outbox_dispatchers
    ADD CONSTRAINT outbox_dispatchers_pkey PRIMARY KEY (name);

ALTER TABLE ONLY lockstep.outbox_home
    ADD CONSTRAINT outbox_home_pkey PRIMARY KEY (one);

ALTER TABLE ONLY lockstep.outbox_parked_events
    ADD CONSTRAINT outbox_parked_events_pkey PRIMARY KEY (dispatcher, stream, seq);

ALTER TABLE ONLY lockstep.outbox_parked
    ADD CONSTRAINT outbox_parked_pkey PRIMARY KEY (dispatcher, stream);

ALTER TABLE ONLY lockstep.outbox_quiet
    ADD CONSTRAINT outbox_quiet_pkey PRIMARY KEY (stream);

ALTER TABLE ONLY lockstep.outbox_segments
    ADD CONSTRAINT outbox_segments_pkey PRIMARY KEY (slot);

ALTER TABLE ONLY lockstep.rollout
    ADD CONSTRAINT rollout_pkey PRIMARY KEY (prefix);

CREATE INDEX idempotency_expires_at ON lockstep.idempotency USING btree (expires_at);

CREATE INDEX lease_history_name ON lockstep.lease_history USING btree (name, id);

CREATE INDEX lease_waiters_name ON lockstep.lease_waiters USING btree (name, place);

CREATE INDEX lock_names_seen_at ON lockstep.lock_names USING btree (seen_at);

CREATE INDEX outbox_events_0_id ON lockstep.outbox_events_0 USING brin (id) WITH (pages_per_range='16', autosummarize='on');

CREATE UNIQUE INDEX outbox_events_0_stream ON lockstep.outbox_events_0 USING btree (stream, seq);

ALTER TABLE ONLY lockstep.outbox_events_0 REPLICA IDENTITY USING INDEX outbox_events_0_stream;

CREATE INDEX outbox_events_0_xid ON lockstep.outbox_events_0 USING btree (bucket_group, xid, id);

CREATE INDEX outbox_events_1_id ON lockstep.outbox_events_1 USING brin (id) WITH (pages_per_range='16', autosummarize='on');

CREATE UNIQUE INDEX outbox_events_1_stream ON lockstep.outbox_events_1 USING btree (stream, seq);

ALTER TABLE ONLY lockstep.outbox_events_1 REPLICA IDENTITY USING INDEX outbox_events_1_stream;

CREATE INDEX outbox_events_1_xid ON lockstep.outbox_events_1 USING btree (bucket_group, xid, id);

CREATE INDEX outbox_events_2_id ON lockstep.outbox_events_2 USING brin (id) WITH (pages_per_range='16', autosummarize='on');

CREATE UNIQUE INDEX outbox_events_2_stream ON lockstep.outbox_events_2 USING btree (stream, seq);

ALTER TABLE ONLY lockstep.outbox_events_2 REPLICA IDENTITY USING INDEX outbox_events_2_stream;

CREATE INDEX outbox_events_2_xid ON lockstep.outbox_events_2 USING btree (bucket_group, xid, id);

CREATE INDEX outbox_events_3_id ON lockstep.outbox_events_3 USING brin (id) WITH (pages_per_range='16', autosummarize='on');

CREATE UNIQUE INDEX outbox_events_3_stream ON lockstep.outbox_events_3 USING btree (stream, seq);

ALTER TABLE ONLY lockstep.outbox_events_3 REPLICA IDENTITY USING INDEX outbox_events_3_stream;

CREATE INDEX outbox_events_3_xid ON lockstep.outbox_events_3 USING btree (bucket_group, xid, id);

CREATE INDEX outbox_events_4_id ON lockstep.outbox_events_4 USING brin (id) WITH (pages_per_range='16', autosummarize='on');

CREATE UNIQUE INDEX outbox_events_4_stream ON lockstep.outbox_events_4 USING btree (stream, seq);

ALTER TABLE ONLY lockstep.outbox_events_4 REPLICA IDENTITY USING INDEX outbox_events_4_stream;

CREATE INDEX outbox_events_4_xid ON lockstep.outbox_events_4 USING btree (bucket_group, xid, id);

CREATE INDEX outbox_events_5_id ON lockstep.outbox_events_5 USING brin (id) WITH (pages_per_range='16', autosummarize='on');

CREATE UNIQUE INDEX outbox_events_5_stream ON lockstep.outbox_events_5 USING btree (stream, seq);

ALTER TABLE ONLY lockstep.outbox_events_5 REPLICA IDENTITY USING INDEX outbox_events_5_stream;

CREATE INDEX outbox_events_5_xid ON lockstep.outbox_events_5 USING btree (bucket_group, xid, id);

CREATE INDEX outbox_events_6_id ON lockstep.outbox_events_6 USING brin (id) WITH (pages_per_range='16', autosummarize='on');

CREATE UNIQUE INDEX outbox_events_6_stream ON lockstep.outbox_events_6 USING btree (stream, seq);

ALTER TABLE ONLY lockstep.outbox_events_6 REPLICA IDENTITY USING INDEX outbox_events_6_stream;

CREATE INDEX outbox_events_6_xid ON lockstep.outbox_events_6 USING btree (bucket_group, xid, id);

CREATE INDEX outbox_events_7_id ON lockstep.outbox_events_7 USING brin (id) WITH (pages_per_range='16', autosummarize='on');

CREATE UNIQUE INDEX outbox_events_7_stream ON lockstep.outbox_events_7 USING btree (stream, seq);

ALTER TABLE ONLY lockstep.outbox_events_7 REPLICA IDENTITY USING INDEX outbox_events_7_stream;

CREATE INDEX outbox_events_7_xid ON lockstep.outbox_events_7 USING btree (bucket_group, xid, id);

CREATE INDEX outbox_parked_shard ON lockstep.outbox_parked USING btree (dispatcher, shard);

CREATE INDEX outbox_ticks_order ON lockstep.outbox_ticks USING btree (newest, running DESC);
