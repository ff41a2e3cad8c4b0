-- compatible-from: 1
-- One life of the server. Transaction ids are good only within one: after a crash, ids whose WAL was not flushed are given out
-- again. The table is UNLOGGED, so a crash, a promotion or a restored base backup empties it; a clean restart does not.
CREATE UNLOGGED TABLE :"schema".incarnation (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  value uuid NOT NULL,
  epoch bigint NOT NULL,
  timeline text NOT NULL,
  system bigint NOT NULL,
  database oid NOT NULL,
  began_at timestamptz NOT NULL
);

-- Counts the lives. Logged: it must never go back.
CREATE TABLE :"schema".epoch (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  value bigint NOT NULL
);
INSERT INTO :"schema".epoch (value) VALUES (0);

-- The current life; begins one where the last has ended. A copy of a database (CREATE DATABASE ... TEMPLATE, dump and restore)
-- brings the row along, hence the comparison with system identifier and database oid. Call it at READ COMMITTED: the second
-- look must see what the holder of the lock has committed.
CREATE FUNCTION :"schema".ensure_incarnation() RETURNS :"schema".incarnation
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  here oid := (SELECT oid FROM pg_database WHERE datname = current_database());
  this_system bigint := (SELECT system_identifier FROM pg_control_system());
  found_row :"schema".incarnation;
BEGIN
  SELECT * INTO found_row FROM :"schema".incarnation i WHERE i.database = here AND i.system = this_system;
  IF FOUND THEN
    RETURN found_row;
  END IF;
  PERFORM pg_advisory_xact_lock(:"schema".lock_id('incarnation', 'Incarnation:global'));
  SELECT * INTO found_row FROM :"schema".incarnation i WHERE i.database = here AND i.system = this_system;
  IF FOUND THEN
    RETURN found_row;
  END IF;
  -- The epoch must be on disk before anything is derived from it.
  PERFORM set_config('synchronous_commit', 'on', true);
  DELETE FROM :"schema".incarnation;
  UPDATE :"schema".epoch SET value = value + 1;
  INSERT INTO :"schema".incarnation (value, epoch, timeline, system, database, began_at)
    SELECT gen_random_uuid(), e.value, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), this_system, here, clock_timestamp()
      FROM :"schema".epoch e
    RETURNING * INTO found_row;
  RETURN found_row;
END
$$;

-- The current life as the table has it, without beginning a new one. Null after a crash.
CREATE FUNCTION :"schema".current_incarnation() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$ SELECT i.value::text FROM :"schema".incarnation i $$;
