-- The import of a table that is not finished, and whether its trigger is there and fires.
CREATE FUNCTION :"schema".outbox_import_state(my_name text)
RETURNS TABLE (id integer, relation text, planned bigint, copied bigint, gone bigint, cut_at timestamptz, active boolean)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT i.id, i.relation, i.planned, i.copied, i.gone, i.cut_at,
         EXISTS (SELECT FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid JOIN pg_namespace n ON n.oid = f.pronamespace
                  WHERE (n.nspname = :'schema') AND f.proname = 'outbox_import_' || i.id AND t.tgenabled IN ('O', 'A')
                    AND t.tgrelid = to_regclass(i.relation))
    FROM :"schema".outbox_imports i WHERE i.relation = my_name AND i.finished_at IS NULL
$$;
