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
function lock_id(domain text, key text) returns bigint language sql immutable strict parallel safe
SELECT ('x' || encode(substr(sha256(
    convert_to('lockstep', 'UTF8') || '\x00'::bytea || convert_to(domain, 'UTF8') || '\x00'::bytea || convert_to(key, 'UTF8')
  ), 1, 8), 'hex'))::bit(64)::bigint
table epoch
  column one boolean not null default true
  column value bigint not null
  constraint epoch_one_check CHECK (one)
  constraint epoch_pkey PRIMARY KEY (one)
  CREATE UNIQUE INDEX epoch_pkey ON lockstep.epoch USING btree (one)
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
