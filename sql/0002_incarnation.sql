-- compatible-from: 1
-- The server epoch: from one crash, promotion or restore to the next. Transaction ids are good only within one: after a crash, ids
-- whose WAL was not flushed are given out again. The table is UNLOGGED, so a crash, a promotion or a restored base backup empties it; a
-- clean restart does not. Its value, a random uuid, is the history: whatever was read outside this transaction is compared by it, and
-- it is in every event that is sent. (outbox functions call it life.) epoch is the generation of its fences, see below.
CREATE UNLOGGED TABLE :"schema".incarnation (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  value uuid NOT NULL,
  epoch bigint NOT NULL,
  timeline text NOT NULL,
  system bigint NOT NULL,
  database oid NOT NULL,
  began_at timestamptz NOT NULL
);

-- What the generation of fences is counted from. A fence is a bigint of 63 bits:
--
--   bits 62 to 40   the generation: the server's timeline + timeline_offset
--   bits 39 to 0    the sequence `fences`
--
-- A promotion begins a new timeline, so that the fences of a promoted standby are above all that its primary gave out, also where the
-- standby had received neither the last of the sequence nor this row. A crash leaves the generation: nobody gets a fence before
-- it is on disk. Where the timeline says nothing about the order (another system identifier or database: a restored dump, a copy; or a
-- timeline that went back), the offset rises by the whole last generation: then also a standby that lacks the new offset has, when it is
-- promoted, a generation above. A disk that was put back to an earlier state, on the same timeline, shows nothing of that: so each epoch
-- begins its fences at the milliseconds since 2025, above what was given out before, as long as that was fewer than 1,000 a second. So
-- fences grow along one chain of promotions and restores. Two standbys of one primary that are both
-- promoted have the same generation: their fences say nothing about each other, and only the histories (incarnation.value) differ.
CREATE TABLE :"schema".epoch (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  system bigint NOT NULL,
  database oid NOT NULL,
  timeline bigint NOT NULL,
  timeline_offset bigint NOT NULL
);
INSERT INTO :"schema".epoch (system, database, timeline, timeline_offset) VALUES (0, 0, 0, 0);

-- The current server epoch; begins one where the last has ended. A copy of a database (CREATE DATABASE ... TEMPLATE, dump and restore)
-- brings the row along, hence the comparison with system identifier and database oid. Call it at READ COMMITTED: the second
-- look must see what the holder of the lock has committed.
CREATE FUNCTION :"schema".ensure_incarnation() RETURNS :"schema".incarnation
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
  here oid := (SELECT oid FROM pg_database WHERE datname = current_database());
  this_system bigint := (SELECT system_identifier FROM pg_control_system());
  this_timeline text;
  number bigint;
  fences regclass;
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
  -- The generation must be on disk before anything is derived from it.
  PERFORM set_config('synchronous_commit', 'on', true);
  -- Not from pg_control_checkpoint(), which names the old one until the first checkpoint after a promotion, minutes later.
  this_timeline := substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8);
  number := ('x' || this_timeline)::bit(32)::bigint;
  DELETE FROM :"schema".incarnation;
  UPDATE :"schema".epoch e
     SET system = this_system, database = here, timeline = number,
         timeline_offset = CASE WHEN e.system = this_system AND e.database = here AND e.timeline <= number
                                THEN e.timeline_offset ELSE e.timeline_offset + e.timeline END;
  -- They come with a later migration.
  IF EXISTS (SELECT FROM pg_class WHERE relname = 'fences'
                AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = :'schema')) THEN
    fences := format('%I.fences', :'schema')::regclass;
    PERFORM setval(fences, greatest(nextval(fences), least(2 ^ 39, extract(epoch FROM clock_timestamp()) * 1000 - 1735689600000)::bigint));
  END IF;
  INSERT INTO :"schema".incarnation (value, epoch, timeline, system, database, began_at)
    SELECT gen_random_uuid(), e.timeline + e.timeline_offset, this_timeline, this_system, here, clock_timestamp()
      FROM :"schema".epoch e
    RETURNING * INTO found_row;
  RETURN found_row;
END
$$;

-- The current life as the table has it, without beginning a new one. Null after a crash.
CREATE FUNCTION :"schema".current_incarnation() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$ SELECT i.value::text FROM :"schema".incarnation i $$;
