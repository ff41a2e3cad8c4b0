-- Makes a trigger of a guard where it is missing, and enables it where it was disabled.
CREATE FUNCTION :"schema".guard_trigger(my_guard integer, my_relation regclass, my_name text, my_events text, my_level text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  enabled text;
BEGIN
  SELECT t.tgenabled INTO enabled FROM pg_trigger t WHERE t.tgrelid = my_relation AND t.tgname = my_name;
  IF enabled IS NULL THEN
    EXECUTE format('CREATE TRIGGER %I %s ON %s FOR EACH %s EXECUTE FUNCTION %I.%I()',
                   my_name, my_events, my_relation, my_level, :'schema', 'guard_' || my_guard);
  ELSIF enabled IN ('D', 'R') THEN
    EXECUTE format('ALTER TABLE %s ENABLE TRIGGER %I', my_relation, my_name);
  END IF;
END
$$;
