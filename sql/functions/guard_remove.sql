-- Removes a guard with its triggers, its function, its counters and its samples. Called by the owner of the schema; only the owner of a
-- table can drop its triggers.
CREATE FUNCTION :"schema".guard_remove(my_guard integer) RETURNS SETOF integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  found record;
  counter text;
BEGIN
  FOR found IN
    SELECT t.tgname, t.tgrelid::regclass AS relation
      FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid JOIN pg_namespace n ON n.oid = f.pronamespace
     WHERE (n.nspname = :'schema') AND f.proname = 'guard_' || my_guard AND t.tgparentid = 0
     ORDER BY t.tgrelid
  LOOP
    EXECUTE format('DROP TRIGGER %I ON %s', found.tgname, found.relation);
  END LOOP;
  EXECUTE format('DROP FUNCTION IF EXISTS %I.%I()', :'schema', 'guard_' || my_guard);
  FOREACH counter IN ARRAY ARRAY['unlocked', 'listed', 'refused'] LOOP
    EXECUTE format('DROP SEQUENCE IF EXISTS %I.%I', :'schema', 'guard_' || my_guard || '_' || counter);
  END LOOP;
  DELETE FROM :"schema".guard_samples s WHERE s.guard = my_guard;
  RETURN QUERY DELETE FROM :"schema".guards g WHERE g.id = my_guard RETURNING g.id;
END
$$;
