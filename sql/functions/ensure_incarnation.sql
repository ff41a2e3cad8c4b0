-- The current server epoch; begins one where the last has ended. A copy of a database (CREATE DATABASE ... TEMPLATE, dump and restore)
-- brings the row along, hence the comparison with system identifier and database oid. Call it at READ COMMITTED: the second
-- look must see what the holder of the lock has committed.
CREATE FUNCTION :"schema".ensure_incarnation() RETURNS :"schema".incarnation
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  here oid := (SELECT oid FROM pg_database WHERE datname = current_database());
  this_system bigint := (SELECT system_identifier FROM pg_control_system());
  this_timeline text;
  this_kind text;
  number bigint;
  fences regclass;
  old_mark bigint;
  new_mark bigint;
  last_id bigint;
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
  -- The last id before the generation: noted by its first event, if there was one.
  SELECT e.mark INTO old_mark FROM :"schema".epoch e;
  PERFORM :"schema".epoch_mark_now();
  SELECT m.last_value INTO new_mark FROM :"schema".epoch_mark m;
  last_id := :"schema".outbox_position();
  IF old_mark IS DISTINCT FROM new_mark THEN
    SELECT f.last_value - 1 INTO last_id FROM :"schema".epoch_first_id f;
  END IF;
  SELECT CASE WHEN e.timeline = 0 THEN 'first' WHEN e.system <> this_system OR e.database <> here THEN 'copy'
              WHEN e.timeline = number THEN 'restart' ELSE 'timeline' END
    INTO this_kind FROM :"schema".epoch e;
  DELETE FROM :"schema".incarnation;
  UPDATE :"schema".epoch e
     SET system = this_system, database = here, timeline = number, mark = new_mark,
         -- A copy: above all generations so far, and at least 1,025 above the last, so that the original's next promotions do not come there.
         timeline_offset = CASE WHEN e.timeline = 0 OR e.system = this_system AND e.database = here AND e.timeline <= number
                                THEN e.timeline_offset
                                ELSE (((e.timeline_offset + e.timeline) >> 10) + 2) << 10 END;
  fences := :'schema.fences'::regclass;
  PERFORM setval(fences, greatest(nextval(fences), least(2 ^ 39, extract(epoch FROM clock_timestamp()) * 1000 - 1735689600000)::bigint));
  INSERT INTO :"schema".incarnation (value, epoch, timeline, system, database, began_at)
    SELECT gen_random_uuid(), e.timeline + e.timeline_offset, this_timeline, this_system, here, clock_timestamp()
      FROM :"schema".epoch e
    RETURNING * INTO found_row;
  IF this_kind = 'timeline' THEN
    PERFORM :"schema".lease_carry_over();
  END IF;
  INSERT INTO :"schema".epochs (history, generation, kind, timeline, system, database, address, began_at, last_known_at, after_id, began_lsn)
  VALUES (found_row.value, found_row.epoch, this_kind, number, this_system, here,
          COALESCE(host(inet_server_addr()), 'local') || ':' || current_setting('port'), found_row.began_at,
          CASE WHEN this_kind = 'timeline' THEN pg_last_xact_replay_timestamp() END, last_id, pg_current_wal_insert_lsn());
  DELETE FROM :"schema".epochs e
   WHERE e.kind = 'restart' AND e.number <= (SELECT max(m.number) - 1000 FROM :"schema".epochs m);
  RETURN found_row;
END
$$;
