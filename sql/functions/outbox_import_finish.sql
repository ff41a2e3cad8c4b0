-- Ends an import: the trigger goes, and the plan. What was imported stays. Called by the owner of the schema, who owns the table or can drop its
-- triggers.
CREATE FUNCTION :"schema".outbox_import_finish(my_import integer, my_reason text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  i :"schema".outbox_imports;
  found record;
BEGIN
  SELECT * INTO i FROM :"schema".outbox_imports o WHERE o.id = my_import FOR UPDATE;
  -- By its function: the table may have another name by now, or be gone.
  FOR found IN
    SELECT t.tgname, t.tgrelid::regclass AS relation
      FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid JOIN pg_namespace n ON n.oid = f.pronamespace
     WHERE (n.nspname = :'schema') AND f.proname = 'outbox_import_' || my_import AND t.tgparentid = 0
  LOOP
    EXECUTE format('DROP TRIGGER %I ON %s', found.tgname, found.relation);
  END LOOP;
  EXECUTE format('DROP FUNCTION IF EXISTS %I.%I()', :'schema', 'outbox_import_' || my_import);
  DELETE FROM :"schema".outbox_import_rows w WHERE w.import = my_import;
  UPDATE :"schema".outbox_imports o SET finished_at = clock_timestamp() WHERE o.id = my_import;
  INSERT INTO :"schema".outbox_audit (verb, reason) VALUES ('import finish', format('%s: %s', i.relation, my_reason));
END
$$;
