-- What the migrations result in. Made by `npm run schema`; a test fails on drift.

function ensure_incarnation() returns lockstep.incarnation language plpgsql volatile
DECLARE
  here oid := (SELECT oid FROM pg_database WHERE datname = current_database());
  this_system bigint := (SELECT system_identifier FROM pg_control_system());
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
  -- The epoch must be on disk before anything is derived from it.
  PERFORM set_config('synchronous_commit', 'on', true);
  DELETE FROM "lockstep".incarnation;
  UPDATE "lockstep".epoch SET value = value + 1;
  INSERT INTO "lockstep".incarnation (value, epoch, timeline, system, database, began_at)
    SELECT gen_random_uuid(), e.value, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), this_system, here, clock_timestamp()
      FROM "lockstep".epoch e
    RETURNING * INTO found_row;
  RETURN found_row;
END
function lease_force_release(held text, forced_by text, forced_reason text) returns integer language plpgsql volatile
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
  PERFORM "lockstep".lease_wake(held);
  RETURN released;
END
function lease_look(tokens uuid[], permits integer[], keep_ms integer) returns TABLE(waiting_token uuid, ready boolean, left_ms double precision) language plpgsql volatile
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
function lease_release(held text, my_token uuid) returns boolean language plpgsql volatile
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
function lease_renew(names text[], tokens uuid[], fences bigint[], ttls_ms integer[]) returns TABLE(renewed_token uuid, outcome text) language plpgsql volatile
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
function lease_take(wanted text, my_token uuid, ttl_ms integer, wanted_permits integer, my_holder text, my_metadata jsonb, my_place bigint, my_remembered boolean, OUT verdict text, OUT granted_slot integer, OUT granted_fence bigint, OUT other_holder text, OUT other_since timestamp with time zone, OUT other_left_ms double precision, OUT other_permits integer) returns record language plpgsql volatile
DECLARE
  ttl interval := make_interval(secs => ttl_ms / 1000.0);
  mine "lockstep".leases;
  busy integer;
  ahead integer;
  several boolean := wanted_permits > 1;
BEGIN
  FOR look IN 1 .. 3 LOOP
    SELECT count(*), max(l.permits) FILTER (WHERE l.permits <> wanted_permits) INTO busy, other_permits
      FROM "lockstep".leases l WHERE l.name = wanted AND l.token IS NOT NULL AND l.expires_at > clock_timestamp();
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
    IF look = 1 THEN
      several := several OR EXISTS (SELECT FROM "lockstep".leases l WHERE l.name = wanted AND l.permits <> wanted_permits);
      IF several THEN
        PERFORM pg_advisory_xact_lock("lockstep".lock_id('lease', wanted));
        CONTINUE;
      END IF;
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);
    -- Locked means held: by whoever takes it just now, or by an open transaction of the last holder.
    SELECT * INTO mine FROM "lockstep".leases l
     WHERE l.name = wanted AND l.slot < wanted_permits AND (l.token IS NULL OR l.expires_at <= clock_timestamp())
     ORDER BY l.slot LIMIT 1
       FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
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
function lease_wake(freed text) returns void language sql volatile
SELECT pg_notify('lockstep_' || "lockstep".lock_id('listen', 'Leases:all'), w.token::text)
    FROM "lockstep".lease_waiters w
   WHERE w.name = freed AND w.expires_at > clock_timestamp()
   ORDER BY w.place LIMIT 1
function lock_id(domain text, key text) returns bigint language sql immutable strict parallel safe
SELECT ('x' || encode(substr(sha256(
    convert_to('lockstep', 'UTF8') || '\x00'::bytea || convert_to(domain, 'UTF8') || '\x00'::bytea || convert_to(key, 'UTF8')
  ), 1, 8), 'hex'))::bit(64)::bigint
function next_fence() returns bigint language sql volatile
SELECT ("lockstep".ensure_incarnation()).epoch * 1099511627776
       + nextval(format('%I.fences', 'lockstep')::regclass)
sequence fences bigint cache 1
sequence lease_history_id_seq bigint cache 1
sequence lease_waiters_place_seq bigint cache 1
table epoch
  column one boolean not null default true
  column value bigint not null
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
table migrations
  column version integer not null
  column name text not null
  column compatible_from integer not null
  column applied_at timestamp with time zone not null default clock_timestamp()
  constraint migrations_pkey PRIMARY KEY (version)
  CREATE UNIQUE INDEX migrations_pkey ON lockstep.migrations USING btree (version)
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
