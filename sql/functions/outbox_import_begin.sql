-- Begins an import, or continues with one of the same table and definition. Called by the owner of the schema.
CREATE FUNCTION :"schema".outbox_import_begin(my_relation regclass, my_definition jsonb, my_reason text) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  my_name text;
  i :"schema".outbox_imports;
BEGIN
  PERFORM :"schema".outbox_import_parts(my_relation, my_definition, 'r');
  SELECT format('%I.%I', n.nspname, c.relname) INTO my_name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = my_relation;
  INSERT INTO :"schema".outbox_imports (relation, definition, reason) VALUES (my_name, my_definition, my_reason) ON CONFLICT DO NOTHING;
  SELECT * INTO i FROM :"schema".outbox_imports o WHERE o.relation = my_name AND o.finished_at IS NULL;
  IF i.definition <> my_definition THEN
    RAISE EXCEPTION 'the import of % has begun with other columns', my_name
      USING ERRCODE = 'object_in_use', DETAIL = i.definition::text, HINT = 'Use the same options, or finish that import first.';
  END IF;
  RETURN i.id;
END
$$;
