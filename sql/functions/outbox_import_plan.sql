-- Plans the pending rows that are committed by now and not planned yet, behind all that are: one statement, and so one snapshot. Returns how
-- many rows are planned and not copied.
CREATE FUNCTION :"schema".outbox_import_plan(my_import integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  i :"schema".outbox_imports;
  p record;
  added bigint;
BEGIN
  -- One session at a time works on an import.
  SELECT * INTO i FROM :"schema".outbox_imports o WHERE o.id = my_import FOR UPDATE;
  SELECT * INTO p FROM :"schema".outbox_import_parts(i.relation::regclass, i.definition, 'r');
  EXECUTE $q$INSERT INTO :"schema".outbox_import_rows (import, place, id)
           SELECT $1, $2 + row_number() OVER (ORDER BY t.sorted, t.id), t.id
             FROM (SELECT $q$ || p.id || $q$ AS id, $q$ || p.sorted || $q$ AS sorted FROM $q$ || i.relation || $q$ r WHERE $q$ || p.pending || $q$) AS t
            WHERE NOT EXISTS (SELECT FROM :"schema".outbox_import_rows w WHERE w.import = $1 AND w.id = t.id)$q$
    USING my_import, i.planned;
  GET DIAGNOSTICS added = ROW_COUNT;
  UPDATE :"schema".outbox_imports o SET planned = i.planned + added WHERE o.id = my_import;
  RETURN i.planned + added - i.copied;
END
$$;
