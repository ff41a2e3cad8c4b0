-- What the migrations result in. Made by `npm run schema`; a test fails on drift.

function current_incarnation() returns text language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
SELECT i.value::text FROM "lockstep".incarnation i
function enqueue(topic text, key text, payload json, headers json DEFAULT NULL::json) returns bigint language sql volatile security definer set search_path=pg_catalog, pg_temp
SELECT "lockstep".outbox_append(topic, key, payload, NULL::bytea, headers, NULL::bigint, NULL::uuid)
function enqueue_bytes(topic text, key text, payload bytea, headers json DEFAULT NULL::json) returns bigint language sql volatile security definer set search_path=pg_catalog, pg_temp
SELECT "lockstep".outbox_append(topic, key, NULL::json, payload, headers, NULL::bigint, NULL::uuid)
function ensure_incarnation() returns lockstep.incarnation language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
  -- They come with a later migration.
  IF EXISTS (SELECT FROM pg_class WHERE relname = 'fences'
                AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'lockstep')) THEN
    fences := format('%I.fences', 'lockstep')::regclass;
    PERFORM setval(fences, greatest(nextval(fences), least(2 ^ 39, extract(epoch FROM clock_timestamp()) * 1000 - 1735689600000)::bigint));
  END IF;
  INSERT INTO "lockstep".incarnation (value, epoch, timeline, system, database, began_at)
    SELECT gen_random_uuid(), e.timeline + e.timeline_offset, this_timeline, this_system, here, clock_timestamp()
      FROM "lockstep".epoch e
    RETURNING * INTO found_row;
  RETURN found_row;
END
function foreign_lock_holders(most integer) returns TABLE(pid integer, role text, application text, id bigint, held boolean, what text) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
DECLARE
  here oid := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
  space oid := (SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'lockstep');
  buckets bigint := "lockstep".outbox_bucket_lock(0);
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
           CASE WHEN (f.id # buckets) BETWEEN 0 AND 63 THEN format('bucket %s of the outbox', f.id # buckets) END,
           -- A stream's number is the first half of its uuid.
           (SELECT format('the stream %s/%s of the outbox', e.topic, e.key) FROM "lockstep".outbox_events e
             WHERE e.stream BETWEEN (lpad(to_hex(f.id), 16, '0') || '0000000000000000')::uuid
                                AND (lpad(to_hex(f.id), 16, '0') || 'ffffffffffffffff')::uuid LIMIT 1),
           CASE WHEN EXISTS (SELECT FROM listed o WHERE o.id = f.id AND o.ours) THEN format('the lock %s, which Lockstep uses', f.id) END
         ) AS name) AS k
   WHERE NOT f.ours AND k.name IS NOT NULL
   ORDER BY f.granted DESC, f.pid, f.id LIMIT most;
END
function idempotency_clean_up(most integer) returns void language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
DELETE FROM "lockstep".idempotency
   WHERE (scope, key) IN (SELECT s.scope, s.key FROM "lockstep".idempotency s WHERE s.expires_at <= clock_timestamp()
                           ORDER BY s.expires_at LIMIT most FOR UPDATE SKIP LOCKED)
function idempotency_keep(my_scope text, my_key text, my_fingerprint bytea, my_status integer, my_headers json, my_body bytea, ttl_ms double precision) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function idempotency_look(my_scope text, my_key text, lease_name text, OUT fingerprint bytea, OUT status integer, OUT headers json, OUT body bytea, OUT left_ms bigint) returns record language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
BEGIN
  SELECT s.fingerprint, s.status, s.headers, s.body INTO fingerprint, status, headers, body FROM "lockstep".idempotency s
   WHERE s.scope = my_scope AND s.key = my_key AND s.expires_at > clock_timestamp();
  left_ms := (SELECT ceil(extract(epoch FROM l.expires_at - clock_timestamp()) * 1000)::bigint FROM "lockstep".leases l
               WHERE l.name = lease_name AND l.token IS NOT NULL AND l.expires_at > clock_timestamp() ORDER BY l.slot LIMIT 1);
END
function inbox_accept(my_consumer text, my_topic text, my_key text, my_seq bigint, my_uuid uuid, tombstone boolean DEFAULT false, start bigint DEFAULT 1) returns text language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
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
function inbox_accept_runs(my_consumer text, topics text[], keys text[], firsts bigint[], counts integer[], uuids uuid[], starts bigint[], idle_ms integer DEFAULT 0) returns TABLE(place integer, verdict text, seq bigint) language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
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
      -- This waits for whoever begins the stream just now.
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
function inbox_position(my_consumer text, my_topic text, my_key text) returns TABLE(seq bigint, uuid uuid) language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
SELECT i.seq, i.uuid FROM "lockstep".inbox i WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key
function inbox_start(my_consumer text, my_topic text, my_key text, start bigint, force boolean DEFAULT false) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
BEGIN
  INSERT INTO "lockstep".inbox AS i (consumer, topic, key, seq) VALUES (my_consumer, my_topic, my_key, start - 1)
      ON CONFLICT (consumer, topic, key) DO UPDATE SET seq = excluded.seq, uuid = NULL WHERE force;
  RETURN FOUND;
END
function lease_clean_up(keep_history bigint, idle_ms bigint) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function lease_counts(OUT held bigint, OUT waiting bigint, OUT names bigint) returns record language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
WITH held AS MATERIALIZED (
    SELECT DISTINCT l.name FROM "lockstep".leases l WHERE l.token IS NOT NULL AND l.expires_at > clock_timestamp()
  ), waiting AS MATERIALIZED (
    SELECT w.name FROM "lockstep".lease_waiters w WHERE w.expires_at > clock_timestamp()
  )
  SELECT (SELECT count(*) FROM held), (SELECT count(*) FROM waiting),
         (SELECT count(*) FROM (SELECT h.name FROM held h UNION SELECT w.name FROM waiting w) AS each)
function lease_endings(wanted text, most integer) returns SETOF lockstep.lease_history language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
SELECT * FROM "lockstep".lease_history h WHERE h.name = wanted ORDER BY h.id DESC LIMIT most
function lease_force_release(held text, forced_by text, forced_reason text) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function lease_guard(held text, my_token uuid, my_fence bigint, bound_ms double precision) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function lease_holders(wanted text, exactly boolean, most integer) returns TABLE(name text, slot integer, permits integer, fence bigint, holder text, metadata jsonb, acquired_at timestamp with time zone, expires_at timestamp with time zone) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
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
function lease_leave(tokens uuid[]) returns void language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
WITH gone AS (DELETE FROM "lockstep".lease_waiters w WHERE w.token = ANY(tokens) RETURNING w.name)
  SELECT "lockstep".lease_wake(names.name) FROM (SELECT DISTINCT gone.name FROM gone) AS names
function lease_look(tokens uuid[], permits integer[], keep_ms integer) returns TABLE(waiting_token uuid, ready boolean, left_ms double precision) language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function lease_queue(wanted text, exactly boolean, most integer) returns TABLE(name text, holder text, since timestamp with time zone) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
BEGIN
  IF exactly THEN
    RETURN QUERY SELECT w.name, w.holder, w.since FROM "lockstep".lease_waiters w
     WHERE w.name = wanted AND w.expires_at > clock_timestamp() ORDER BY w.place LIMIT most;
  ELSE
    RETURN QUERY SELECT w.name, w.holder, w.since FROM "lockstep".lease_waiters w
     WHERE starts_with(w.name, wanted) AND w.expires_at > clock_timestamp() ORDER BY w.name, w.place LIMIT most;
  END IF;
END
function lease_release(held text, my_token uuid) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function lease_renew(names text[], tokens uuid[], fences bigint[], ttls_ms integer[]) returns TABLE(renewed_token uuid, outcome text) language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function lease_take(wanted text, my_token uuid, ttl_ms integer, wanted_permits integer, my_holder text, my_metadata jsonb, my_place bigint, my_remembered boolean, OUT verdict text, OUT granted_slot integer, OUT granted_fence bigint, OUT other_holder text, OUT other_since timestamp with time zone, OUT other_left_ms double precision, OUT other_permits integer) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function lease_wait(names text[], tokens uuid[], holders text[], keep_ms integer) returns TABLE(waiting_token uuid, waiting_place bigint) language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
INSERT INTO "lockstep".lease_waiters AS w (name, token, holder, expires_at)
  SELECT g.name, g.token, g.holder, clock_timestamp() + make_interval(secs => keep_ms / 1000.0)
    FROM unnest(names, tokens, holders) WITH ORDINALITY AS g(name, token, holder, number)
   ORDER BY g.number
      ON CONFLICT (token) DO UPDATE SET expires_at = excluded.expires_at
  RETURNING w.token, w.place
function lease_wake(freed text) returns void language sql volatile set jit=off
SELECT pg_notify('lockstep_' || "lockstep".lock_id('listen', 'Leases:all'), w.place::text)
    FROM "lockstep".lease_waiters w
   WHERE w.name = freed AND w.expires_at > clock_timestamp()
   ORDER BY w.place LIMIT 1
function lock_id(domain text, key text) returns bigint language sql immutable strict parallel safe
SELECT ('x' || encode(substr(sha256(
    convert_to('lockstep', 'UTF8') || decode('00', 'hex') || convert_to(domain, 'UTF8') || decode('00', 'hex') || convert_to(key, 'UTF8')
  ), 1, 8), 'hex'))::bit(64)::bigint
function lock_names_of(ids bigint[]) returns TABLE(id bigint, key text) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
BEGIN
  RETURN QUERY SELECT n.id, n.key FROM "lockstep".lock_names n WHERE n.id = ANY(ids);
END
function lock_names_record(names json) returns void language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
INSERT INTO "lockstep".lock_names AS known (id, key)
  SELECT given.id, given.key
    FROM (SELECT (name ->> 0)::bigint AS id, name ->> 1 AS key FROM json_array_elements(names) AS n(name)) AS given
   WHERE given.id = "lockstep".lock_id('lock', given.key)
   ORDER BY given.id
      ON CONFLICT (id) DO UPDATE SET key = excluded.key, seen_at = excluded.seen_at
   WHERE known.seen_at < excluded.seen_at - interval '4 minutes'
function lock_names_trim(keep integer, most integer) returns void language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
DELETE FROM "lockstep".lock_names WHERE id IN (
    SELECT n.id FROM "lockstep".lock_names n
     WHERE n.seen_at < (SELECT s.seen_at FROM "lockstep".lock_names s ORDER BY s.seen_at DESC OFFSET greatest(keep, 1) - 1 LIMIT 1)
     ORDER BY n.seen_at LIMIT most FOR UPDATE SKIP LOCKED)
function lock_row_try(my_id bigint, shared boolean) returns bigint language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
BEGIN
  IF shared THEN
    RETURN (SELECT r.id FROM "lockstep".lock_rows r WHERE r.id = my_id FOR SHARE SKIP LOCKED);
  END IF;
  RETURN (SELECT r.id FROM "lockstep".lock_rows r WHERE r.id = my_id FOR UPDATE SKIP LOCKED);
END
function lock_row_wait(my_id bigint, shared boolean) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
BEGIN
  IF shared THEN
    INSERT INTO "lockstep".lock_rows (id) VALUES (my_id) ON CONFLICT (id) DO NOTHING;
    PERFORM FROM "lockstep".lock_rows r WHERE r.id = my_id FOR SHARE;
  ELSE
    INSERT INTO "lockstep".lock_rows (id) VALUES (my_id) ON CONFLICT (id) DO UPDATE SET id = excluded.id WHERE false;
  END IF;
END
function lock_rows_existing(ids bigint[]) returns bigint language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
SELECT count(*) FROM "lockstep".lock_rows r WHERE r.id = ANY(ids)
function lock_trials_forget(my_route text) returns void language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
DELETE FROM "lockstep".lock_trials t WHERE t.route = my_route
function lock_trials_known(my_system bigint, my_route text, my_strategy text, least_version integer) returns text language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
SELECT string_agg(CASE WHEN t.pooled THEN 'pooled ' ELSE 'direct ' END || t.connections, ',') FROM "lockstep".lock_trials t
   WHERE t.system = my_system AND t.route = my_route AND t.strategy = my_strategy AND t.version >= least_version
function lock_trials_remember(my_route text, my_strategy text, was_pooled boolean, my_connections integer, my_version integer) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function next_fence() returns bigint language sql volatile
SELECT ("lockstep".ensure_incarnation()).epoch * 1099511627776
       + nextval(format('%I.fences', 'lockstep')::regclass)
function outbox_advance(my_dispatcher text, my_shard smallint, my_fence bigint, my_version bigint, my_life text, new_prev pg_snapshot, new_next pg_snapshot, new_after bigint, new_done boolean, new_seen bigint, waiting jsonb DEFAULT NULL::jsonb) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
BEGIN
  -- Not before it is sent, only that it is sent: what a crash takes back is sent once more.
  PERFORM set_config('synchronous_commit', 'off', true);
  PERFORM pg_advisory_xact_lock_shared("lockstep".outbox_shard_lock(my_dispatcher, my_shard));
  IF NOT EXISTS (SELECT FROM "lockstep".outbox_here(my_dispatcher) AS h WHERE h.life = my_life AND NOT h.elsewhere) THEN
    RETURN false;
  END IF;
  INSERT INTO "lockstep".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
  SELECT my_dispatcher, my_shard, my_version + 1, my_fence, new_prev, new_next, new_after, new_done, new_seen
    FROM (SELECT o.version, o.fence FROM "lockstep".outbox_cursors o
           WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1) AS c
   WHERE c.version = my_version AND c.fence = my_fence
      ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF my_version % 100 = 0 THEN
    -- Not all that there ever were, but now and then: deleted ones stay in the index while a session holds an old snapshot.
    DELETE FROM "lockstep".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard AND o.version < my_version
       AND o.version >= my_version - CASE WHEN my_version % 10000 = 0 THEN my_version ELSE 300 END;
  END IF;
  IF waiting IS NOT NULL THEN
    -- Before the events are read: whoever erases payloads waits for copies that are being made, and they for it.
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
function outbox_append(topic text, key text, payload json, bytes bytea, headers json, known bigint DEFAULT NULL::bigint, id uuid DEFAULT NULL::uuid) returns bigint language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
DECLARE
  -- Before the id is given out, and before the slot is read.
  me xid8 := pg_current_xact_id();
  -- As outbox_stream(), outbox_bucket() and outbox_stream_lock() have it.
  digest bytea := sha256(convert_to('lockstep', 'UTF8') || decode('006f7574626f7800', 'hex') || convert_to(topic, 'UTF8')
                         || decode('00', 'hex') || convert_to(key, 'UTF8'));
  mine uuid := encode(substr(digest, 1, 16), 'hex')::uuid;
  my_bucket smallint := get_byte(digest, 15) & 63;
  my_id bigint;
  my_seq bigint := known;
  last_xid xid8;
  streams integer := CASE WHEN known IS NULL AND outbox_append.id IS NULL
                          THEN COALESCE(NULLIF(current_setting('lockstep.outbox_streams', true), ''), '0')::integer END;
BEGIN
  IF COALESCE(octet_length(topic), 0) NOT BETWEEN 1 AND 1000 OR COALESCE(octet_length(key), 0) NOT BETWEEN 1 AND 1000
     OR (known IS NULL AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted')) THEN
    PERFORM "lockstep".outbox_check_names(topic, key);
    PERFORM "lockstep".outbox_refuse_isolation();
  END IF;
  IF headers IS NOT NULL THEN PERFORM "lockstep".outbox_check_headers(topic, key, headers); END IF;
  IF (payload IS NULL) = (bytes IS NULL)
     OR COALESCE(octet_length(bytes), octet_length(payload::text))::bigint + COALESCE(octet_length(headers::text), 0)
        > "lockstep".outbox_max_event_bytes() THEN
    PERFORM "lockstep".outbox_refuse_payload(topic, key, octet_length(payload::text), octet_length(bytes), octet_length(headers::text));
  END IF;
  IF streams >= 100 THEN
    -- As outbox_bucket_lock() has it, and as below.
    PERFORM pg_advisory_xact_lock(('x' || encode(substr(sha256(
      convert_to('lockstep', 'UTF8') || decode('006f7574626f782d6275636b657400', 'hex')
    ), 1, 8), 'hex'))::bit(64)::bigint # my_bucket::bigint);
  -- Takes the bucket's lock, then the stream's: neither is ever null.
  ELSIF pg_advisory_xact_lock_shared(('x' || encode(substr(sha256(
       convert_to('lockstep', 'UTF8') || decode('006f7574626f782d6275636b657400', 'hex')
     ), 1, 8), 'hex'))::bit(64)::bigint # my_bucket::bigint) IS NULL
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
    INSERT INTO "lockstep".outbox_events_0 (slot, id, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (0, my_id, me, my_bucket, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 1 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_1 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_1 (slot, id, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (1, my_id, me, my_bucket, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 2 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_2 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_2 (slot, id, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (2, my_id, me, my_bucket, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 3 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_3 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_3 (slot, id, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (3, my_id, me, my_bucket, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 4 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_4 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_4 (slot, id, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (4, my_id, me, my_bucket, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 5 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_5 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_5 (slot, id, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (5, my_id, me, my_bucket, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 6 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_6 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_6 (slot, id, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (6, my_id, me, my_bucket, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  WHEN 7 THEN
    IF my_seq IS NULL THEN
      SELECT l.seq, l.xid INTO my_seq, last_xid FROM "lockstep".outbox_events_7 l WHERE l.stream = mine ORDER BY l.seq DESC LIMIT 1;
      IF my_seq IS NULL THEN my_seq := ("lockstep".outbox_last(ARRAY[mine]))[1]; END IF;
    END IF;
    my_seq := my_seq + 1;
    my_id := nextval('"lockstep".outbox_ids'::regclass);
    INSERT INTO "lockstep".outbox_events_7 (slot, id, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    VALUES (7, my_id, me, my_bucket, mine, my_seq, COALESCE(outbox_append.id, gen_random_uuid()), clock_timestamp(),
            topic, key, payload, bytes, headers);
  END CASE;
  IF my_id % 1000 = 0 THEN PERFORM "lockstep".outbox_tick(my_id); END IF;
  IF streams < 100 AND last_xid IS DISTINCT FROM me THEN
    PERFORM set_config('lockstep.outbox_streams', (streams + 1)::text, true);
  END IF;
  RETURN my_seq;
END
function outbox_append_many(topics text[], keys text[], payloads text[], bytes bytea[], headers text[], locked boolean DEFAULT false, known bigint[] DEFAULT NULL::bigint[]) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
    FROM unnest(topics, keys, headers) AS g(topic, key, headers) WHERE g.headers IS NOT NULL;
  PERFORM "lockstep".outbox_refuse_payload(g.topic, g.key, octet_length(g.payload), octet_length(g.bytes), octet_length(g.headers))
     FROM unnest(topics, keys, payloads, bytes, headers) AS g(topic, key, payload, bytes, headers)
    WHERE (g.payload IS NULL) = (g.bytes IS NULL)
       OR COALESCE(octet_length(g.bytes), octet_length(g.payload))::bigint + COALESCE(octet_length(g.headers), 0)
          > "lockstep".outbox_max_event_bytes();
  streams := ARRAY(SELECT DISTINCT s FROM unnest(all_streams) AS s);
  IF NOT locked THEN
    PERFORM "lockstep".outbox_lock(streams);
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
    INSERT INTO "lockstep".outbox_events (slot, xid, bucket, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers)
    SELECT my_slot, me, "lockstep".outbox_bucket(g.stream), g.stream,
           l.last + row_number() OVER (PARTITION BY g.stream ORDER BY g.n), gen_random_uuid(), clock_timestamp(),
           g.topic, g.key, g.payload::json, g.bytes, g.headers::json
      FROM unnest(all_streams, topics, keys, payloads, bytes, headers) WITH ORDINALITY
             AS g(stream, topic, key, payload, bytes, headers, n)
      JOIN unnest(streams, lasts) AS l(stream, last) ON l.stream = g.stream
     ORDER BY g.n
    RETURNING id)
  SELECT min(id), max(id), count(*) INTO first_id, last_id, added FROM appended;
  IF last_id / 1000 > (first_id - 1) / 1000 THEN
    PERFORM "lockstep".outbox_tick(last_id);
  END IF;
  RETURN added;
END
function outbox_bucket(stream uuid) returns smallint language sql immutable strict parallel safe
SELECT (('x' || right(stream::text, 2))::bit(8)::integer & 63)::smallint
function outbox_bucket_lock(bucket integer) returns bigint language sql immutable strict parallel safe
SELECT "lockstep".lock_id('outbox-bucket', '') # bucket::bigint
function outbox_check_headers(topic text, key text, headers json) returns void language plpgsql immutable set search_path=pg_catalog, pg_temp
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
function outbox_check_names(topic text, key text) returns void language plpgsql immutable
BEGIN
  IF COALESCE(octet_length(topic), 0) NOT BETWEEN 1 AND 1000 OR COALESCE(octet_length(key), 0) NOT BETWEEN 1 AND 1000 THEN
    RAISE EXCEPTION 'an event needs a topic and a key of 1 to 1000 bytes' USING ERRCODE = 'invalid_parameter_value';
  END IF;
END
function outbox_dispatcher_names() returns SETOF text language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
SELECT d.name FROM "lockstep".outbox_dispatchers d ORDER BY d.name
function outbox_drop(min_age interval) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function outbox_emptied(my_topic text, my_key text, next_seq bigint, OUT emptied_id bigint, OUT gone boolean) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
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
function outbox_erase(my_topic text, my_key text, my_reason text) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function outbox_estimate(slots smallint[], my_bucket smallint, first_xid xid8, end_xid xid8, after_id bigint, OUT events bigint, OUT exact boolean, OUT oldest timestamp with time zone) returns record language plpgsql stable set enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off, plan_cache_mode=force_generic_plan
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
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = my_bucket AND e.xid = first_xid AND e.id > after_id
             ORDER BY e.bucket, e.xid, e.id LIMIT few) AS f;
  ELSE
    SELECT count(*), min(f.id), max(f.id), min(f.enqueued_at) INTO events, head_low, head_high, oldest
      FROM (SELECT e.id, e.enqueued_at FROM "lockstep".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = my_bucket AND e.xid >= first_xid AND e.xid < upper_xid AND e.id > after_id
             ORDER BY e.bucket, e.xid, e.id LIMIT few) AS f;
  END IF;
  exact := events < few;
  IF exact THEN
    RETURN;
  END IF;
  IF first_xid = end_xid THEN
    SELECT count(*) FILTER (WHERE f.id > head_high), min(f.id), max(f.id) INTO tail, tail_low, tail_high
      FROM (SELECT e.id FROM "lockstep".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = my_bucket AND e.xid = first_xid AND e.id > after_id
             ORDER BY e.bucket DESC, e.xid DESC, e.id DESC LIMIT few) AS f;
  ELSE
    SELECT count(*) FILTER (WHERE f.id > head_high), min(f.id), max(f.id) INTO tail, tail_low, tail_high
      FROM (SELECT e.id FROM "lockstep".outbox_events e
             WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = my_bucket AND e.xid >= first_xid AND e.xid < upper_xid AND e.id > after_id
             ORDER BY e.bucket DESC, e.xid DESC, e.id DESC LIMIT few) AS f;
  END IF;
  exact := tail < few;
  events := events + tail + (greatest(tail_low - head_high - 1, 0)
              * ((few - 1)::float8 / (head_high - head_low) + (few - 1)::float8 / (tail_high - tail_low)) / 2)::bigint;
END
function outbox_fetch(my_dispatcher text, my_shards smallint[], my_fences bigint[], shard_count integer, max_events integer) returns TABLE(shard smallint, verdict text, life text, prev text, next text, version bigint, last_id bigint, parked_due_ms bigint, event_id bigint, topic text, key text, seq bigint, uuid uuid, enqueued_ms bigint, payload text, hex text, headers text, tombstone text, waits text, stale text) language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, plan_cache_mode=force_generic_plan, jit=off
DECLARE
  c "lockstep".outbox_cursors;
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
  SELECT * INTO here FROM "lockstep".outbox_here(my_dispatcher);
  IF here.elsewhere THEN
    RETURN QUERY SELECT s, 'elsewhere', NULL, NULL, NULL, NULL::bigint, NULL::bigint, NULL::bigint,
                        NULL::bigint, NULL, NULL, NULL::bigint, NULL::uuid, NULL::bigint, NULL, NULL, NULL, NULL, NULL, NULL
                   FROM unnest(my_shards) AS s;
    RETURN;
  END IF;
  FOR i IN 1 .. cardinality(my_shards) LOOP
    SELECT * INTO c FROM "lockstep".outbox_cursors o
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
        SELECT t.snapshot INTO tick FROM "lockstep".outbox_ticks t
         WHERE t.newest >= pg_snapshot_xmax(a)
           AND (t.newest > pg_snapshot_xmax(a) OR t.running < "lockstep".outbox_running(a))
         ORDER BY t.newest, t.running DESC OFFSET stride - 1 LIMIT 1;
        z := COALESCE(tick, pg_current_snapshot());
      END IF;
      running := ARRAY(SELECT pg_snapshot_xip(a));
      -- Not those that everybody had left before the window begins; the current one always: a restored dump may not know it.
      slots := ARRAY(SELECT s.slot FROM "lockstep".outbox_segments s
                      WHERE s.sealed_xid IS NULL OR s.sealed_xid > pg_snapshot_xmin(a)
                     UNION SELECT o.last_value FROM "lockstep".outbox_slot o);
      -- The rest of a window of few transactions, such as one that wrote a million events: read anew for every piece, 6,500/s;
      -- transaction by transaction, from where the last piece ended, 47,000/s.
      few_buckets := NULL;
      IF resumed AND floor > 0 THEN
        SELECT * INTO few_buckets, few_xids FROM "lockstep".outbox_window_parts(slots, buckets, a, z);
      END IF;
      -- Mostly there is one slot, and the plan for it is kept. One plan for all slots would lock all of them, and wait for whoever
      -- empties one; without one kept, the planning takes four fifths of the time when there is little to read.
      CASE WHEN cardinality(slots) > 1 OR few_buckets IS NOT NULL THEN
        source := CASE WHEN cardinality(slots) = 1 THEN format('%I.outbox_events_%s', 'lockstep', slots[1])
                       ELSE format('(SELECT * FROM %I.outbox_events WHERE slot = ANY(%L::smallint[]))', 'lockstep', slots) END;
        events := CASE WHEN few_buckets IS NULL
          THEN format('SELECT * FROM %1$s AS e WHERE e.bucket = ANY($2) AND e.xid >= $3 AND e.xid < $4 AND e.id > $5 UNION ALL
                       SELECT * FROM %1$s AS e WHERE e.bucket = ANY($2) AND e.xid = ANY($6) AND e.id > $5', source)
          ELSE format('SELECT e.* FROM unnest($7, $8) AS p(bucket, xid) CROSS JOIN LATERAL (
                         SELECT * FROM %s AS v WHERE v.bucket = p.bucket AND v.xid = p.xid AND v.id > $5 ORDER BY v.id LIMIT $9
                       ) AS e', source) END;
        RETURN QUERY EXECUTE format($query$SELECT $1, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
               w.id, w.topic, w.key, w.seq, w.uuid, (extract(epoch FROM w.enqueued_at) * 1000)::bigint, w.payload::text,
               encode(w.bytes, 'hex'), w.headers::text, CASE WHEN w.erased THEN 'erased' END,
               CASE WHEN w.stream IN (SELECT p.stream FROM %I.outbox_parked p WHERE p.dispatcher = $10 AND p.shard = $1) THEN 'waits' END, NULL::text
          FROM (%s) AS w WHERE pg_visible_in_snapshot(w.xid, $11) ORDER BY w.id LIMIT $9 $query$, 'lockstep', events)
          USING my_shards[i], buckets, pg_snapshot_xmax(a), pg_snapshot_xmax(z), floor, running, few_buckets, few_xids, max_events,
                my_dispatcher, z;
      WHEN slots[1] = 0 THEN
        RETURN QUERY SELECT my_shards[i], NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
               w.id, w.topic, w.key, w.seq, w.uuid, (extract(epoch FROM w.enqueued_at) * 1000)::bigint, w.payload::text,
               encode(w.bytes, 'hex'), w.headers::text, CASE WHEN w.erased THEN 'erased' END,
               CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN 'waits' END, NULL::text
          FROM (SELECT * FROM "lockstep".outbox_events_0 e
                 WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                UNION ALL
                SELECT * FROM "lockstep".outbox_events_0 e
                 WHERE cardinality(running) > 0 AND e.bucket = ANY(buckets) AND e.xid = ANY(running) AND e.id > floor) AS w
         WHERE pg_visible_in_snapshot(w.xid, z) ORDER BY w.id LIMIT max_events;
      WHEN slots[1] = 1 THEN
        RETURN QUERY SELECT my_shards[i], NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
               w.id, w.topic, w.key, w.seq, w.uuid, (extract(epoch FROM w.enqueued_at) * 1000)::bigint, w.payload::text,
               encode(w.bytes, 'hex'), w.headers::text, CASE WHEN w.erased THEN 'erased' END,
               CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN 'waits' END, NULL::text
          FROM (SELECT * FROM "lockstep".outbox_events_1 e
                 WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                UNION ALL
                SELECT * FROM "lockstep".outbox_events_1 e
                 WHERE cardinality(running) > 0 AND e.bucket = ANY(buckets) AND e.xid = ANY(running) AND e.id > floor) AS w
         WHERE pg_visible_in_snapshot(w.xid, z) ORDER BY w.id LIMIT max_events;
      WHEN slots[1] = 2 THEN
        RETURN QUERY SELECT my_shards[i], NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
               w.id, w.topic, w.key, w.seq, w.uuid, (extract(epoch FROM w.enqueued_at) * 1000)::bigint, w.payload::text,
               encode(w.bytes, 'hex'), w.headers::text, CASE WHEN w.erased THEN 'erased' END,
               CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN 'waits' END, NULL::text
          FROM (SELECT * FROM "lockstep".outbox_events_2 e
                 WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                UNION ALL
                SELECT * FROM "lockstep".outbox_events_2 e
                 WHERE cardinality(running) > 0 AND e.bucket = ANY(buckets) AND e.xid = ANY(running) AND e.id > floor) AS w
         WHERE pg_visible_in_snapshot(w.xid, z) ORDER BY w.id LIMIT max_events;
      WHEN slots[1] = 3 THEN
        RETURN QUERY SELECT my_shards[i], NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
               w.id, w.topic, w.key, w.seq, w.uuid, (extract(epoch FROM w.enqueued_at) * 1000)::bigint, w.payload::text,
               encode(w.bytes, 'hex'), w.headers::text, CASE WHEN w.erased THEN 'erased' END,
               CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN 'waits' END, NULL::text
          FROM (SELECT * FROM "lockstep".outbox_events_3 e
                 WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                UNION ALL
                SELECT * FROM "lockstep".outbox_events_3 e
                 WHERE cardinality(running) > 0 AND e.bucket = ANY(buckets) AND e.xid = ANY(running) AND e.id > floor) AS w
         WHERE pg_visible_in_snapshot(w.xid, z) ORDER BY w.id LIMIT max_events;
      WHEN slots[1] = 4 THEN
        RETURN QUERY SELECT my_shards[i], NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
               w.id, w.topic, w.key, w.seq, w.uuid, (extract(epoch FROM w.enqueued_at) * 1000)::bigint, w.payload::text,
               encode(w.bytes, 'hex'), w.headers::text, CASE WHEN w.erased THEN 'erased' END,
               CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN 'waits' END, NULL::text
          FROM (SELECT * FROM "lockstep".outbox_events_4 e
                 WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                UNION ALL
                SELECT * FROM "lockstep".outbox_events_4 e
                 WHERE cardinality(running) > 0 AND e.bucket = ANY(buckets) AND e.xid = ANY(running) AND e.id > floor) AS w
         WHERE pg_visible_in_snapshot(w.xid, z) ORDER BY w.id LIMIT max_events;
      WHEN slots[1] = 5 THEN
        RETURN QUERY SELECT my_shards[i], NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
               w.id, w.topic, w.key, w.seq, w.uuid, (extract(epoch FROM w.enqueued_at) * 1000)::bigint, w.payload::text,
               encode(w.bytes, 'hex'), w.headers::text, CASE WHEN w.erased THEN 'erased' END,
               CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN 'waits' END, NULL::text
          FROM (SELECT * FROM "lockstep".outbox_events_5 e
                 WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                UNION ALL
                SELECT * FROM "lockstep".outbox_events_5 e
                 WHERE cardinality(running) > 0 AND e.bucket = ANY(buckets) AND e.xid = ANY(running) AND e.id > floor) AS w
         WHERE pg_visible_in_snapshot(w.xid, z) ORDER BY w.id LIMIT max_events;
      WHEN slots[1] = 6 THEN
        RETURN QUERY SELECT my_shards[i], NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
               w.id, w.topic, w.key, w.seq, w.uuid, (extract(epoch FROM w.enqueued_at) * 1000)::bigint, w.payload::text,
               encode(w.bytes, 'hex'), w.headers::text, CASE WHEN w.erased THEN 'erased' END,
               CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN 'waits' END, NULL::text
          FROM (SELECT * FROM "lockstep".outbox_events_6 e
                 WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                UNION ALL
                SELECT * FROM "lockstep".outbox_events_6 e
                 WHERE cardinality(running) > 0 AND e.bucket = ANY(buckets) AND e.xid = ANY(running) AND e.id > floor) AS w
         WHERE pg_visible_in_snapshot(w.xid, z) ORDER BY w.id LIMIT max_events;
      WHEN slots[1] = 7 THEN
        RETURN QUERY SELECT my_shards[i], NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
               w.id, w.topic, w.key, w.seq, w.uuid, (extract(epoch FROM w.enqueued_at) * 1000)::bigint, w.payload::text,
               encode(w.bytes, 'hex'), w.headers::text, CASE WHEN w.erased THEN 'erased' END,
               CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN 'waits' END, NULL::text
          FROM (SELECT * FROM "lockstep".outbox_events_7 e
                 WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                UNION ALL
                SELECT * FROM "lockstep".outbox_events_7 e
                 WHERE cardinality(running) > 0 AND e.bucket = ANY(buckets) AND e.xid = ANY(running) AND e.id > floor) AS w
         WHERE pg_visible_in_snapshot(w.xid, z) ORDER BY w.id LIMIT max_events;
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
    last_id := (SELECT s.last_value FROM "lockstep".outbox_ids s);
    -- A segment waits for this cursor to be written, and it could be by now.
    stale := (SELECT 'stale' FROM "lockstep".outbox_segments s
               WHERE s.sealed_xid > pg_snapshot_xmin(CASE WHEN c.done THEN c.next ELSE c.prev END)
                 AND s.sealed_xid <= pg_snapshot_xmin(z) LIMIT 1);
    parked_due_ms := (SELECT ceil(extract(epoch FROM min(p.next_attempt_at) - clock_timestamp()) * 1000)::bigint
                        FROM "lockstep".outbox_parked p
                       WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i] AND p.state = 'parked');
    RETURN NEXT;
  END LOOP;
END
function outbox_flush(OUT life text, OUT place pg_lsn) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  PERFORM set_config('client_min_messages', 'warning', true);
  place := pg_logical_emit_message(true, 'lockstep', '');
  IF current_setting('synchronous_standby_names') = '' THEN
    place := NULL;
  END IF;
  life := (SELECT h.life FROM "lockstep".outbox_here(NULL::text) AS h);
END
function outbox_forget_xids(this_system text) returns bigint[] language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function outbox_halt() returns void language plpgsql volatile
BEGIN
  PERFORM pg_advisory_xact_lock("lockstep".lock_id('outbox-retain', 'Outbox:rotate'));
  -- The slots, and not the table above them, which only some of those that write go through, and before their slot.
  LOCK TABLE "lockstep".outbox_home, "lockstep".outbox_dispatchers,
             "lockstep".outbox_events_0, "lockstep".outbox_events_1, "lockstep".outbox_events_2, "lockstep".outbox_events_3,
             "lockstep".outbox_events_4, "lockstep".outbox_events_5, "lockstep".outbox_events_6, "lockstep".outbox_events_7,
             "lockstep".outbox_cursors, "lockstep".outbox_parked, "lockstep".outbox_parked_events IN EXCLUSIVE MODE;
END
function outbox_head(my_dispatcher text, my_topic text, my_key text, max_bytes integer) returns TABLE(seq bigint, uuid uuid, enqueued_at timestamp with time zone, headers json, tombstone text, size bigint, payload text, hex text) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
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
function outbox_here(my_dispatcher text, OUT life text, OUT elsewhere boolean) returns record language plpgsql stable set jit=off
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
function outbox_keep(min_age interval, OUT readied integer, OUT more boolean) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
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
function outbox_last(streams uuid[]) returns bigint[] language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
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
function outbox_lock(streams uuid[]) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp
DECLARE
  many boolean := cardinality(streams) > 100;
  next bigint;
BEGIN
  FOR next IN SELECT "lockstep".outbox_bucket_lock(b.n::integer)
                FROM (SELECT DISTINCT "lockstep".outbox_bucket(s) AS n FROM unnest(streams) AS s) AS b ORDER BY b.n LOOP
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
function outbox_lock(topics text[], keys text[]) returns void language plpgsql volatile security definer set search_path=pg_catalog, pg_temp
BEGIN
  PERFORM "lockstep".outbox_lock(ARRAY(SELECT DISTINCT "lockstep".outbox_stream(g.topic, g.key) FROM unnest(topics, keys) AS g(topic, key)));
END
function outbox_max_event_bytes() returns bigint language sql stable parallel safe
SELECT 1000000::bigint
function outbox_move(my_dispatcher text, my_shards smallint[], my_fences bigint[], my_versions bigint[], my_lives text[], new_prevs pg_snapshot[], new_nexts pg_snapshot[], new_afters bigint[], new_dones boolean[], new_seens bigint[]) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off, plan_cache_mode=force_generic_plan
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
function outbox_operate(verb text, my_dispatcher text, my_topic text, my_key text, my_seq bigint, my_reason text, my_id uuid DEFAULT NULL::uuid) returns text language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
    VALUES (my_dispatcher, mine, "lockstep".outbox_bucket(mine) * d.shards / 64, my_topic, my_key, 'paused', my_reason)
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
function outbox_owns(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text) returns boolean language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
SELECT COALESCE((SELECT o.fence = my_fence FROM "lockstep".outbox_cursors o
                    WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1), false)
     AND EXISTS (SELECT FROM "lockstep".outbox_here(my_dispatcher) AS h WHERE h.life = my_life AND NOT h.elsewhere)
function outbox_parked_due(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, max_streams integer, max_events integer) returns TABLE(attempts integer, event_id bigint, topic text, key text, seq bigint, uuid uuid, enqueued_ms bigint, payload text, hex text, headers text, tombstone text, unreadable bigint, more text) language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
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
                  e.id, e.seq, e.uuid, (date_part('epoch', e.enqueued_at) * 1000)::bigint, e.tombstone, NULL, NULL, NULL, NULL;
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
function outbox_parked_list(my_dispatcher text, most integer) returns TABLE(dispatcher text, topic text, key text, state text, attempts integer, reason text, since timestamp with time zone, next_attempt_at timestamp with time zone, events bigint, head bigint, head_id uuid) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
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
function outbox_parked_tried(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, outcomes jsonb) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, jit=off
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
    -- Where an operator has given the event up meanwhile, what became of it before does not count.
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
function outbox_passed() returns xid8 language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function outbox_position() returns bigint language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END FROM "lockstep".outbox_ids s
function outbox_prepare_segment(min_age interval) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function outbox_read(my_dispatcher text, my_shards smallint[], my_fences bigint[], max_events integer[], shard_count integer) returns TABLE(shard text, verdict text, life text, prev text, next text, version text, last_id text, parked_due_ms text, stale text, whole text, ids text, topics text, keys text, seqs text, uuids text, enqueued_ms text, bodies text, headers text, flags text) language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, plan_cache_mode=force_generic_plan, jit=off
DECLARE
  c "lockstep".outbox_cursors;
  a pg_snapshot;
  z pg_snapshot;
  tick pg_snapshot;
  ended xid8[];
  source text;
  events text;
  few_buckets smallint[];
  few_xids xid8[];
  buckets smallint[];
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
      SELECT INTO verdict, life, prev, next, version, last_id, parked_due_ms, stale, whole, found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
                  'lost', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
      RETURN NEXT;
      CONTINUE;
    END IF;
    buckets := ARRAY(SELECT generate_series(my_shards[i] * 64 / shard_count, (my_shards[i] + 1) * 64 / shard_count - 1)::smallint);
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
      -- The rest of a window of few transactions, such as one that wrote a million events: read anew for every piece, 6,500/s;
      -- transaction by transaction, from where the last piece ended, 47,000/s.
      few_buckets := NULL;
      IF resumed AND floor > 0 THEN
        SELECT * INTO few_buckets, few_xids FROM "lockstep".outbox_window_parts(slots, buckets, a, z);
      END IF;
      -- Where nothing is stored apart, every event fits on a page, and none needs to be measured: that is an eighth of the time.
      large := (SELECT bool_or(pg_relation_size(r.reltoastrelid) > 0)
                  FROM unnest(slots) AS n JOIN pg_class r ON r.oid = format('%I.outbox_events_%s', 'lockstep', n)::regclass);
      most := max_events[i];
      LOOP
        BEGIN
          -- Mostly there is one slot, and the plan for it is kept. One plan for all slots would lock all of them, and wait for whoever
          -- empties one; without one kept, the planning takes four fifths of the time when there is little to read.
          CASE WHEN cardinality(slots) > 1 OR few_buckets IS NOT NULL THEN
            source := CASE WHEN cardinality(slots) = 1 THEN format('%I.outbox_events_%s', 'lockstep', slots[1])
                           ELSE format('(SELECT * FROM %I.outbox_events WHERE slot = ANY(%L::smallint[]))', 'lockstep', slots) END;
            events := CASE WHEN few_buckets IS NULL
              THEN format('SELECT * FROM %1$s AS e WHERE e.bucket = ANY($2) AND e.xid >= $3 AND e.xid < $4 AND e.id > $5 UNION ALL
                           SELECT t.* FROM unnest($6) AS x(xid) CROSS JOIN unnest($2) AS b(bucket) CROSS JOIN LATERAL (
                             SELECT * FROM %1$s AS e WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > $5 ORDER BY e.id LIMIT $9
                           ) AS t', source)
              ELSE format('SELECT e.* FROM unnest($7, $8) AS p(bucket, xid) CROSS JOIN LATERAL (
                             SELECT * FROM %s AS v WHERE v.bucket = p.bucket AND v.xid = p.xid AND v.id > $5 ORDER BY v.id LIMIT $9
                           ) AS e', source) END;
            EXECUTE format($query$SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
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
              INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              USING my_shards[i], buckets, pg_snapshot_xmax(a), pg_snapshot_xmax(z), floor, ended, few_buckets, few_xids, most,
                    my_dispatcher, z, most_stored, limit_bytes;
          WHEN slots[1] = 0 AND NOT large THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_0 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_0 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 0 THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_0 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_0 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 1 AND NOT large THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_1 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_1 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 1 THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_1 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_1 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 2 AND NOT large THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_2 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_2 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 2 THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_2 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_2 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 3 AND NOT large THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_3 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_3 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 3 THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_3 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_3 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 4 AND NOT large THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_4 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_4 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 4 THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_4 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_4 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 5 AND NOT large THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_5 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_5 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 5 THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_5 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_5 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 6 AND NOT large THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_6 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_6 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 6 THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_6 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_6 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS l) AS u
                                   ) AS s WHERE COALESCE(s.before, 0) < most_stored OFFSET 0) AS m) AS w;
          WHEN slots[1] = 7 AND NOT large THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(COALESCE(w.payload::text, E'\x1d' || encode(w.bytes, 'hex'), ''), E'\x1e'), string_agg(COALESCE(w.headers::text, ''), E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), 0 INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_7 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_7 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
                     WHERE pg_visible_in_snapshot(v.xid, z) ORDER BY v.id LIMIT most) AS w;
          WHEN slots[1] = 7 THEN
            SELECT count(*), array_agg(w.id), json_agg(w.topic), json_agg(w.key), array_agg(w.seq), array_agg(w.uuid),
               array_agg((date_part('epoch', w.enqueued_at) * 1000)::bigint),
               string_agg(CASE WHEN w.unpacked > limit_bytes THEN E'\x1c' || w.unpacked
                         ELSE COALESCE(w.body, E'\x1d' || encode(w.bytes, 'hex'), '') END, E'\x1e'), string_agg(CASE WHEN w.unpacked > limit_bytes THEN '' ELSE w.head END, E'\x1e'),
               string_agg(CASE WHEN w.stream IN (SELECT p.stream FROM "lockstep".outbox_parked p WHERE p.dispatcher = my_dispatcher AND p.shard = my_shards[i]) THEN CASE WHEN w.erased THEN 'b' ELSE 'w' END
                               WHEN w.erased THEN 'e' ELSE ' ' END, ''), sum(w.size) INTO found_events, ids, topics, keys, seqs, uuids, enqueued_ms, bodies, headers, flags, stored
              FROM (SELECT m.*, CASE WHEN m.stored > limit_bytes THEN m.stored
                                     ELSE COALESCE(octet_length(m.bytes), octet_length(m.body), 0)::bigint + octet_length(m.head) END AS unpacked
                      FROM (SELECT s.*, CASE WHEN s.stored > limit_bytes THEN NULL ELSE s.payload::text END AS body,
                                   CASE WHEN s.stored > limit_bytes THEN '' ELSE COALESCE(s.headers::text, '') END AS head
                              FROM (SELECT u.*, sum(u.size) OVER (ORDER BY u.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
                                      FROM (SELECT l.*, "lockstep".outbox_stored_bytes(l.payload, l.bytes, l.headers) AS stored,
                                                   COALESCE(pg_column_size(l.payload)::bigint * CASE WHEN pg_column_compression(l.payload) IS NULL THEN 1 ELSE 10 END,
                                                            octet_length(l.bytes)::bigint * 2, 0)
                                                   + COALESCE(pg_column_size(l.headers), 0) AS size FROM (SELECT * FROM (
                      SELECT * FROM "lockstep".outbox_events_7 e
                       WHERE e.bucket = ANY(buckets) AND e.xid >= pg_snapshot_xmax(a) AND e.xid < pg_snapshot_xmax(z) AND e.id > floor
                      UNION ALL
                      SELECT t.* FROM unnest(ended) AS x(xid) CROSS JOIN unnest(buckets) AS b(bucket) CROSS JOIN LATERAL (
                        SELECT * FROM "lockstep".outbox_events_7 e
                         WHERE e.bucket = b.bucket AND e.xid = x.xid AND e.id > floor ORDER BY e.id LIMIT most) AS t) AS v
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
function outbox_rebase(my_dispatcher text, choice text, this_system text, this_database text, this_timeline bigint, my_reason text) returns bigint language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
       WHERE e.bucket * d.shards / 64 = n
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
  SELECT DISTINCT my_dispatcher, e.stream, "lockstep".outbox_bucket(e.stream) * d.shards / 64, e.topic, e.key, 'parked', 'rebase'
    FROM "lockstep".outbox_parked_events e WHERE e.dispatcher = my_dispatcher
      ON CONFLICT DO NOTHING;
  UPDATE "lockstep".outbox_dispatchers o SET system = this_system, database = this_database, timeline = this_timeline
   WHERE o.name = my_dispatcher;
  INSERT INTO "lockstep".outbox_audit (verb, dispatcher, reason) VALUES ('rebase ' || choice, my_dispatcher, my_reason);
  RETURN put_aside;
END
function outbox_refuse_isolation() returns void language plpgsql stable
BEGIN
  RAISE EXCEPTION 'an event cannot be enqueued at %: its number would be read from a snapshot that is older than the stream''s lock',
    upper(current_setting('transaction_isolation'))
    USING ERRCODE = 'feature_not_supported',
          HINT = 'Use READ COMMITTED, or declare the stream: lockstep.transaction({ isolation, streams: [{ topic, key }] }, fn).';
END
function outbox_refuse_payload(topic text, key text, json_bytes integer, bytes_bytes integer, header_bytes integer) returns void language plpgsql stable
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
function outbox_register(my_name text, my_shards smallint, this_system text, this_database text, this_timeline bigint, shards_stated boolean, my_retain_ms bigint, OUT shards smallint, OUT system text, OUT database text, OUT timeline bigint) returns record language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function outbox_remove(my_dispatcher text, my_reason text) returns text language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function outbox_replay_after(after_id bigint, up_to bigint, my_topic text, most integer) returns SETOF lockstep.outbox_events language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
BEGIN
  RETURN QUERY
  SELECT * FROM "lockstep".outbox_events e
   WHERE e.id > after_id AND e.id <= up_to AND (my_topic IS NULL OR e.topic = my_topic)
   ORDER BY e.id LIMIT most;
END
function outbox_replay_stream(my_topic text, my_key text, from_seq bigint, to_seq bigint, up_to bigint, most integer) returns SETOF lockstep.outbox_events language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off, plan_cache_mode=force_custom_plan
BEGIN
  RETURN QUERY
  SELECT * FROM "lockstep".outbox_events e
   WHERE e.stream = "lockstep".outbox_stream(my_topic, my_key)
     AND e.seq >= from_seq AND e.id <= up_to AND (to_seq IS NULL OR e.seq <= to_seq)
   ORDER BY e.seq LIMIT most;
END
function outbox_replicated(place pg_lsn) returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp
DECLARE
  -- As in ANY 2 (a, b, c) or FIRST 1 (a, b) or 2 (a, b); a list alone is FIRST 1.
  wanted integer := COALESCE(substring(current_setting('synchronous_standby_names') FROM '^[^"(]*?([0-9]+)\s*\(')::integer, 1);
BEGIN
  IF NOT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') THEN
    RETURN NULL;
  END IF;
  RETURN (SELECT count(*) >= wanted FROM pg_stat_replication r WHERE r.sync_state IN ('sync', 'quorum') AND r.flush_lsn >= place);
END
function outbox_retention() returns interval language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
BEGIN
  RETURN (SELECT CASE WHEN count(*) = count(d.retain_ms) THEN make_interval(secs => max(d.retain_ms) / 1000.0) END
            FROM "lockstep".outbox_dispatchers d);
END
function outbox_rotate() returns boolean language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function outbox_running(given pg_snapshot) returns integer language sql immutable strict parallel safe
SELECT count(*)::integer FROM pg_snapshot_xip(given)
function outbox_seal() returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
DECLARE
  current_number bigint := (SELECT s.number FROM "lockstep".outbox_segments s WHERE s.slot = (SELECT last_value FROM "lockstep".outbox_slot));
  sealed integer;
BEGIN
  UPDATE "lockstep".outbox_segments s SET left_at = clock_timestamp(), sealed_xid = pg_current_xact_id()
   WHERE s.number < current_number AND s.sealed_xid IS NULL;
  GET DIAGNOSTICS sealed = ROW_COUNT;
  RETURN sealed;
END
function outbox_segment_list() returns TABLE(number bigint, opened_at timestamp with time zone, left_at timestamp with time zone, bytes bigint, is_current boolean) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, jit=off
BEGIN
  RETURN QUERY
  SELECT s.number, s.opened_at, s.left_at, pg_total_relation_size(format('%I.%I', 'lockstep', 'outbox_events_' || s.slot)::regclass),
         s.slot = (SELECT o.last_value FROM "lockstep".outbox_slot o)
    FROM "lockstep".outbox_segments s ORDER BY s.number;
END
function outbox_shard_lock(my_dispatcher text, my_shard smallint) returns bigint language plpgsql immutable strict parallel safe
BEGIN
  -- As lock_id() has it.
  RETURN ('x' || encode(substr(sha256(
    convert_to('lockstep', 'UTF8') || decode('006f7574626f782d736861726400', 'hex') || convert_to(my_dispatcher || ':' || my_shard, 'UTF8')
  ), 1, 8), 'hex'))::bit(64)::bigint;
END
function outbox_status() returns TABLE(dispatcher text, shard text, fence text, moved_ms text, parked text, lag_events text, lag_exact text, oldest_ms text) language plpgsql stable security definer set search_path=pg_catalog, pg_temp, enable_seqscan=off, enable_bitmapscan=off, jit=off, plan_cache_mode=force_generic_plan
DECLARE
  d "lockstep".outbox_dispatchers;
  c "lockstep".outbox_cursors;
  next pg_snapshot;
  buckets smallint[];
  slots smallint[];
  ended xid8[];
  part_buckets smallint[];
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
      buckets := ARRAY(SELECT generate_series(n * 64 / d.shards, (n + 1) * 64 / d.shards - 1)::smallint);
      -- As in outbox_read().
      ended := ARRAY(SELECT x FROM pg_snapshot_xip(next) AS x WHERE pg_visible_in_snapshot(x, pg_current_snapshot()) ORDER BY x);
      slots := ARRAY(SELECT s.slot FROM "lockstep".outbox_segments s
                      WHERE s.sealed_xid IS NULL OR s.sealed_xid > least(pg_snapshot_xmax(next), ended[1])
                     UNION SELECT o.last_value FROM "lockstep".outbox_slot o);
      FOR part IN SELECT r.* FROM unnest(buckets) AS b
                   CROSS JOIN (SELECT pg_snapshot_xmax(next) AS low, NULL::xid8 AS high UNION ALL SELECT x, x FROM unnest(ended) AS x) AS w
                   CROSS JOIN LATERAL "lockstep".outbox_estimate(slots, b, w.low, w.high, 0::bigint) AS r LOOP
        SELECT INTO total, all_exact, oldest total + part.events, all_exact AND part.exact, least(oldest, part.oldest);
      END LOOP;
      IF NOT c.done THEN
        ended := ARRAY(SELECT x FROM pg_snapshot_xip(c.prev) AS x WHERE pg_visible_in_snapshot(x, next) ORDER BY x);
        slots := ARRAY(SELECT s.slot FROM "lockstep".outbox_segments s
                        WHERE s.sealed_xid IS NULL OR s.sealed_xid > least(pg_snapshot_xmax(c.prev), ended[1])
                       UNION SELECT o.last_value FROM "lockstep".outbox_slot o);
        SELECT * INTO part_buckets, part_xids FROM "lockstep".outbox_window_parts(slots, buckets, c.prev, next);
        IF part_buckets IS NULL THEN
          -- Many small transactions: ids grow with them, nearly. So the place that the cursor has come to is found by halving.
          SELECT INTO part_buckets, part_xids array_agg(b), array_agg(x) FROM unnest(buckets) AS b CROSS JOIN unnest(ended) AS x;
          FOR i IN 1 .. cardinality(buckets) LOOP
            low := pg_snapshot_xmax(c.prev)::text::bigint;
            high := pg_snapshot_xmax(next)::text::bigint;
            WHILE low < high LOOP
              middle := (low + high) / 2;
              SELECT e.id, e.xid INTO at FROM "lockstep".outbox_events e
               WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = buckets[i] AND e.xid >= middle::text::xid8 AND e.xid < high::text::xid8
               ORDER BY e.bucket, e.xid, e.id LIMIT 1;
              IF NOT FOUND OR at.id > c.after_id THEN
                high := middle;
              ELSE
                low := at.xid::text::bigint + 1;
              END IF;
            END LOOP;
            SELECT * INTO part FROM "lockstep".outbox_estimate(slots, buckets[i], low::text::xid8, pg_snapshot_xmax(next), c.after_id);
            SELECT INTO total, all_exact, oldest total + part.events, false, least(oldest, part.oldest);
          END LOOP;
        END IF;
        FOR part IN SELECT r.* FROM unnest(part_buckets, part_xids) AS p(bucket, xid)
                     CROSS JOIN LATERAL "lockstep".outbox_estimate(slots, p.bucket, p.xid, p.xid, c.after_id) AS r
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
function outbox_stored_bytes(payload json, bytes bytea, headers json) returns bigint language sql stable parallel safe
SELECT COALESCE(octet_length(bytes), pg_column_size(payload) - 4, 0)::bigint + COALESCE(pg_column_size(headers) - 4, 0)
function outbox_stream(topic text, key text) returns uuid language sql immutable strict parallel safe
SELECT encode(substr(sha256(
    convert_to('lockstep', 'UTF8') || decode('006f7574626f7800', 'hex') || convert_to(topic, 'UTF8') || decode('00', 'hex') || convert_to(key, 'UTF8')
  ), 1, 16), 'hex')::uuid
function outbox_stream_lock(stream uuid) returns bigint language sql immutable strict parallel safe
SELECT ('x' || left(replace(stream::text, '-', ''), 16))::bit(64)::bigint
function outbox_take(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, shard_count integer) returns text language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function outbox_tick(at_id bigint) returns void language plpgsql volatile set jit=off
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
function outbox_unpark(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, topics text[], keys text[]) returns integer language plpgsql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
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
function outbox_window_parts(slots smallint[], buckets smallint[], a pg_snapshot, z pg_snapshot, OUT part_buckets smallint[], OUT part_xids xid8[]) returns record language plpgsql stable set enable_seqscan=off, enable_bitmapscan=off, enable_sort=off, jit=off, plan_cache_mode=force_generic_plan
DECLARE
  few CONSTANT integer := 300;
BEGIN
  WITH RECURSIVE begun AS (
    SELECT b AS bucket, (pg_snapshot_xmax(a)::text::bigint - 1)::text::xid8 AS xid FROM unnest(buckets) AS b
  ), steps AS (
    SELECT * FROM begun
    UNION ALL
    SELECT s.bucket, n.xid
      FROM steps s
      CROSS JOIN LATERAL (
        SELECT e.xid FROM "lockstep".outbox_events e
         WHERE e.slot IN (slots[1], slots[2], slots[3], slots[4], slots[5], slots[6], slots[7], slots[8]) AND e.bucket = s.bucket
           AND e.xid > s.xid AND e.xid < pg_snapshot_xmax(z)
         ORDER BY e.bucket, e.xid LIMIT 1) AS n
  )
  SELECT array_agg(p.bucket), array_agg(p.xid) INTO part_buckets, part_xids
    FROM (SELECT b AS bucket, x AS xid FROM unnest(buckets) AS b CROSS JOIN pg_snapshot_xip(a) AS x WHERE pg_visible_in_snapshot(x, z)
          UNION ALL
          SELECT * FROM (SELECT * FROM steps OFFSET cardinality(buckets)) AS found
          LIMIT few + 1) AS p;
  IF cardinality(part_xids) > few THEN
    part_buckets := NULL;
    part_xids := NULL;
  END IF;
END
function rollout_rules() returns SETOF lockstep.rollout language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
SELECT * FROM "lockstep".rollout r ORDER BY r.prefix
function rollout_set(my_prefix text, my_mode text, my_percent integer, my_reason text) returns void language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
INSERT INTO "lockstep".rollout (prefix, mode, percent, reason) VALUES (my_prefix, my_mode, my_percent, my_reason)
      ON CONFLICT (prefix) DO UPDATE
     SET mode = excluded.mode, percent = excluded.percent, reason = excluded.reason, changed_at = clock_timestamp()
function rollout_unset(my_prefix text) returns SETOF text language sql volatile security definer set search_path=pg_catalog, pg_temp, jit=off
DELETE FROM "lockstep".rollout r WHERE r.prefix = my_prefix RETURNING r.prefix
function schema_version(OUT version integer, OUT compatible_from integer) returns record language sql stable security definer set search_path=pg_catalog, pg_temp, jit=off
SELECT max(m.version), max(m.compatible_from) FROM "lockstep".migrations m
sequence fences bigint cache 1
sequence lease_history_id_seq bigint cache 1
sequence lease_waiters_place_seq bigint cache 1
sequence outbox_audit_id_seq bigint cache 1
sequence outbox_ids bigint cache 1
sequence outbox_slot smallint cache 1
table epoch
  column one boolean not null default true
  column system bigint not null
  column database oid not null
  column timeline bigint not null
  column timeline_offset bigint not null
  constraint epoch_one_check CHECK (one)
  constraint epoch_pkey PRIMARY KEY (one)
  CREATE UNIQUE INDEX epoch_pkey ON lockstep.epoch USING btree (one)
table idempotency
  column scope text not null
  column key text not null
  column fingerprint bytea not null
  column status integer not null
  column headers json not null
  column body bytea not null
  column created_at timestamp with time zone not null
  column expires_at timestamp with time zone not null
  constraint idempotency_pkey PRIMARY KEY (scope, key)
  CREATE INDEX idempotency_expires_at ON lockstep.idempotency USING btree (expires_at)
  CREATE UNIQUE INDEX idempotency_pkey ON lockstep.idempotency USING btree (scope, key)
table inbox
  column consumer text not null
  column topic text not null
  column key text not null
  column seq bigint not null
  column uuid uuid
  constraint inbox_pkey PRIMARY KEY (consumer, topic, key)
  constraint inbox_seq_check CHECK ((seq >= 0))
  CREATE UNIQUE INDEX inbox_pkey ON lockstep.inbox USING btree (consumer, topic, key)
unlogged table incarnation
  column one boolean not null default true
  column value uuid not null
  column epoch bigint not null
  column timeline text not null
  column system bigint not null
  column database oid not null
  column began_at timestamp with time zone not null
  constraint incarnation_one_check CHECK (one)
  constraint incarnation_pkey PRIMARY KEY (one)
  CREATE UNIQUE INDEX incarnation_pkey ON lockstep.incarnation USING btree (one)
table lease_history
  column id bigint not null
  column name text not null
  column slot integer not null
  column fence bigint not null
  column holder text not null
  column metadata jsonb
  column acquired_at timestamp with time zone not null
  column ended_at timestamp with time zone not null
  column ending text not null
  column ended_by text
  column reason text
  constraint lease_history_ending_check CHECK ((ending = ANY (ARRAY['released'::text, 'expired'::text, 'forced'::text])))
  constraint lease_history_pkey PRIMARY KEY (id)
  CREATE INDEX lease_history_name ON lockstep.lease_history USING btree (name, id)
  CREATE UNIQUE INDEX lease_history_pkey ON lockstep.lease_history USING btree (id)
table lease_waiters
  column place bigint not null
  column name text not null
  column token uuid not null
  column holder text not null
  column since timestamp with time zone not null default clock_timestamp()
  column expires_at timestamp with time zone not null
  constraint lease_waiters_pkey PRIMARY KEY (place)
  constraint lease_waiters_token_key UNIQUE (token)
  CREATE INDEX lease_waiters_name ON lockstep.lease_waiters USING btree (name, place)
  CREATE UNIQUE INDEX lease_waiters_pkey ON lockstep.lease_waiters USING btree (place)
  CREATE UNIQUE INDEX lease_waiters_token_key ON lockstep.lease_waiters USING btree (token)
table leases
  column name text not null
  column slot integer not null
  column permits integer not null
  column fence bigint not null
  column token uuid
  column holder text not null
  column metadata jsonb
  column acquired_at timestamp with time zone not null
  column expires_at timestamp with time zone not null
  column remembered boolean not null default true
  constraint leases_check CHECK ((permits > slot))
  constraint leases_name_fence_key UNIQUE (name, fence)
  constraint leases_pkey PRIMARY KEY (name, slot)
  CREATE UNIQUE INDEX leases_name_fence_key ON lockstep.leases USING btree (name, fence)
  CREATE UNIQUE INDEX leases_pkey ON lockstep.leases USING btree (name, slot)
unlogged table lock_names
  column id bigint not null
  column key text not null
  column seen_at timestamp with time zone not null default clock_timestamp()
  constraint lock_names_pkey PRIMARY KEY (id)
  CREATE INDEX lock_names_seen_at ON lockstep.lock_names USING btree (seen_at)
  CREATE UNIQUE INDEX lock_names_pkey ON lockstep.lock_names USING btree (id)
table lock_rows
  column id bigint not null
  constraint lock_rows_pkey PRIMARY KEY (id)
  CREATE UNIQUE INDEX lock_rows_pkey ON lockstep.lock_rows USING btree (id)
table lock_trials
  column system bigint not null
  column route text not null
  column strategy text not null
  column pooled boolean not null
  column connections smallint not null
  column version integer not null
  column tried_at timestamp with time zone not null default clock_timestamp()
  constraint lock_trials_pkey PRIMARY KEY (system, route, strategy, pooled)
  CREATE UNIQUE INDEX lock_trials_pkey ON lockstep.lock_trials USING btree (system, route, strategy, pooled)
table migrations
  column version integer not null
  column name text not null
  column compatible_from integer not null
  column applied_at timestamp with time zone not null default clock_timestamp()
  constraint migrations_pkey PRIMARY KEY (version)
  CREATE UNIQUE INDEX migrations_pkey ON lockstep.migrations USING btree (version)
table outbox_audit
  column id bigint not null
  column at timestamp with time zone not null default clock_timestamp()
  column by_role text not null default SESSION_USER
  column by_name text default NULLIF(current_setting('lockstep.by'::text, true), ''::text)
  column by_address inet default inet_client_addr()
  column verb text not null
  column dispatcher text
  column topic text
  column key text
  column seq bigint
  column reason text
  constraint outbox_audit_pkey PRIMARY KEY (id)
  CREATE UNIQUE INDEX outbox_audit_pkey ON lockstep.outbox_audit USING btree (id)
table outbox_cursors
  column dispatcher text not null
  column shard smallint not null
  column version bigint not null
  column fence bigint not null
  column prev pg_snapshot not null
  column next pg_snapshot not null
  column after_id bigint not null
  column done boolean not null
  column seen_id bigint not null
  column moved_at timestamp with time zone not null default clock_timestamp()
  constraint outbox_cursors_pkey PRIMARY KEY (dispatcher, shard, version)
  CREATE UNIQUE INDEX outbox_cursors_pkey ON lockstep.outbox_cursors USING btree (dispatcher, shard, version)
table outbox_dead
  column dispatcher text not null
  column stream uuid not null
  column seq bigint not null
  column id bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column reason text
  column died_at timestamp with time zone not null default clock_timestamp()
  constraint outbox_dead_pkey PRIMARY KEY (dispatcher, stream, seq)
  CREATE UNIQUE INDEX outbox_dead_pkey ON lockstep.outbox_dead USING btree (dispatcher, stream, seq)
table outbox_dispatchers
  column name text not null
  column shards smallint not null
  column system text not null
  column database text not null
  column timeline bigint not null
  column retain_ms bigint default 604800000
  column created_at timestamp with time zone not null default clock_timestamp()
  constraint outbox_dispatchers_pkey PRIMARY KEY (name)
  CREATE UNIQUE INDEX outbox_dispatchers_pkey ON lockstep.outbox_dispatchers USING btree (name)
table outbox_events
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
table outbox_events_0
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  CREATE INDEX outbox_events_0_id ON lockstep.outbox_events_0 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_0_xid ON lockstep.outbox_events_0 USING btree (bucket, xid, id)
  CREATE UNIQUE INDEX outbox_events_0_stream ON lockstep.outbox_events_0 USING btree (stream, seq)
table outbox_events_1
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  CREATE INDEX outbox_events_1_id ON lockstep.outbox_events_1 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_1_xid ON lockstep.outbox_events_1 USING btree (bucket, xid, id)
  CREATE UNIQUE INDEX outbox_events_1_stream ON lockstep.outbox_events_1 USING btree (stream, seq)
table outbox_events_2
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  CREATE INDEX outbox_events_2_id ON lockstep.outbox_events_2 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_2_xid ON lockstep.outbox_events_2 USING btree (bucket, xid, id)
  CREATE UNIQUE INDEX outbox_events_2_stream ON lockstep.outbox_events_2 USING btree (stream, seq)
table outbox_events_3
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  CREATE INDEX outbox_events_3_id ON lockstep.outbox_events_3 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_3_xid ON lockstep.outbox_events_3 USING btree (bucket, xid, id)
  CREATE UNIQUE INDEX outbox_events_3_stream ON lockstep.outbox_events_3 USING btree (stream, seq)
table outbox_events_4
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  CREATE INDEX outbox_events_4_id ON lockstep.outbox_events_4 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_4_xid ON lockstep.outbox_events_4 USING btree (bucket, xid, id)
  CREATE UNIQUE INDEX outbox_events_4_stream ON lockstep.outbox_events_4 USING btree (stream, seq)
table outbox_events_5
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  CREATE INDEX outbox_events_5_id ON lockstep.outbox_events_5 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_5_xid ON lockstep.outbox_events_5 USING btree (bucket, xid, id)
  CREATE UNIQUE INDEX outbox_events_5_stream ON lockstep.outbox_events_5 USING btree (stream, seq)
table outbox_events_6
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  CREATE INDEX outbox_events_6_id ON lockstep.outbox_events_6 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_6_xid ON lockstep.outbox_events_6 USING btree (bucket, xid, id)
  CREATE UNIQUE INDEX outbox_events_6_stream ON lockstep.outbox_events_6 USING btree (stream, seq)
table outbox_events_7
  column slot smallint not null
  column id bigint not null default nextval('lockstep.outbox_ids'::regclass)
  column xid xid8 not null
  column bucket smallint not null
  column stream uuid not null
  column seq bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column erased boolean not null default false
  CREATE INDEX outbox_events_7_id ON lockstep.outbox_events_7 USING brin (id) WITH (pages_per_range='16', autosummarize='on')
  CREATE INDEX outbox_events_7_xid ON lockstep.outbox_events_7 USING btree (bucket, xid, id)
  CREATE UNIQUE INDEX outbox_events_7_stream ON lockstep.outbox_events_7 USING btree (stream, seq)
table outbox_home
  column one boolean not null default true
  column system text not null
  column emptied_id bigint not null default 0
  constraint outbox_home_one_check CHECK (one)
  constraint outbox_home_pkey PRIMARY KEY (one)
  CREATE UNIQUE INDEX outbox_home_pkey ON lockstep.outbox_home USING btree (one)
table outbox_parked
  column dispatcher text not null
  column stream uuid not null
  column shard smallint not null
  column topic text not null
  column key text not null
  column state text not null
  column attempts integer not null default 0
  column reason text
  column since timestamp with time zone not null default clock_timestamp()
  column next_attempt_at timestamp with time zone not null default clock_timestamp()
  column sent_seq bigint not null default 0
  constraint outbox_parked_pkey PRIMARY KEY (dispatcher, stream)
  constraint outbox_parked_state_check CHECK ((state = ANY (ARRAY['parked'::text, 'blocked'::text, 'paused'::text])))
  CREATE INDEX outbox_parked_shard ON lockstep.outbox_parked USING btree (dispatcher, shard)
  CREATE UNIQUE INDEX outbox_parked_pkey ON lockstep.outbox_parked USING btree (dispatcher, stream)
table outbox_parked_events
  column dispatcher text not null
  column stream uuid not null
  column seq bigint not null
  column id bigint not null
  column uuid uuid not null
  column enqueued_at timestamp with time zone not null
  column topic text not null
  column key text not null
  column payload json
  column bytes bytea
  column headers json
  column tombstone text
  constraint outbox_parked_events_pkey PRIMARY KEY (dispatcher, stream, seq)
  CREATE UNIQUE INDEX outbox_parked_events_pkey ON lockstep.outbox_parked_events USING btree (dispatcher, stream, seq)
table outbox_quiet
  column stream uuid not null
  column topic text not null
  column key text not null
  column seq bigint not null
  constraint outbox_quiet_pkey PRIMARY KEY (stream)
  CREATE UNIQUE INDEX outbox_quiet_pkey ON lockstep.outbox_quiet USING btree (stream)
table outbox_segments
  column slot smallint not null
  column number bigint not null
  column opened_at timestamp with time zone not null
  column left_at timestamp with time zone
  column sealed_xid xid8
  column kept_stream uuid
  column last_id bigint
  column kept_at timestamp with time zone
  constraint outbox_segments_pkey PRIMARY KEY (slot)
  CREATE UNIQUE INDEX outbox_segments_pkey ON lockstep.outbox_segments USING btree (slot)
unlogged table outbox_ticks
  column newest xid8 not null
  column running integer not null
  column id bigint not null
  column snapshot pg_snapshot not null
  column written pg_lsn
  CREATE INDEX outbox_ticks_order ON lockstep.outbox_ticks USING btree (newest, running DESC)
table rollout
  column prefix text not null
  column mode text not null
  column percent integer
  column reason text not null default ''::text
  column changed_at timestamp with time zone not null default clock_timestamp()
  constraint rollout_check CHECK (((mode = 'percent'::text) = (percent IS NOT NULL)))
  constraint rollout_mode_check CHECK ((mode = ANY (ARRAY['off'::text, 'observe'::text, 'on'::text, 'percent'::text])))
  constraint rollout_percent_check CHECK (((percent >= 0) AND (percent <= 100)))
  constraint rollout_pkey PRIMARY KEY (prefix)
  CREATE UNIQUE INDEX rollout_pkey ON lockstep.rollout USING btree (prefix)
