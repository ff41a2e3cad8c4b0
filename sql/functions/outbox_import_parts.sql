-- The SQL of an import, made of the names of columns and of literals, all quoted: expressions on a row that is called my_row; `matches` compares its id with w.id. Values become text by
-- format('%s'), which calls the output function of their type and no cast: a trigger runs them with the rights of the schema's owner.
-- definition: { topic and key: { literals, columns }, order, id, payload, headers, sent }, the last two are null where there is none.
CREATE FUNCTION :"schema".outbox_import_parts(
  my_relation regclass, definition jsonb, my_row text,
  OUT topic text, OUT key text, OUT payload text, OUT bytes text, OUT headers text, OUT id text, OUT matches text, OUT sorted text, OUT pending text
)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  texts CONSTANT text[] := ARRAY['int2', 'int4', 'int8', 'uuid', 'numeric', 'text', 'varchar', 'bpchar'];
  use record;
  type_name text;
  is_enum boolean;
  not_null boolean;
  value text;
  template text;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                  WHERE c.oid = my_relation AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
                    AND n.nspname <> ALL (ARRAY['pg_catalog', :'schema', 'information_schema'])) THEN
    RAISE EXCEPTION '% cannot be imported: it is not a table of yours, or a temporary one', my_relation USING ERRCODE = 'wrong_object_type';
  END IF;
  -- The caller would not see all rows.
  IF row_security_active(my_relation) THEN
    RAISE EXCEPTION '% cannot be imported: policies hide rows from the role %', my_relation, current_user
      USING ERRCODE = 'wrong_object_type', HINT = 'Use a role with BYPASSRLS.';
  END IF;
  -- Its rows are read with the table's, but its triggers are its own.
  IF EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent WHERE i.inhparent = my_relation AND c.relkind = 'r') THEN
    RAISE EXCEPTION '% cannot be imported: other tables inherit from it', my_relation USING ERRCODE = 'wrong_object_type';
  END IF;
  FOR use IN
    SELECT u.name, u.value AS column_name FROM (VALUES ('order', definition->>'order'), ('id', definition->>'id'), ('payload', definition->>'payload'),
                                                        ('headers', definition->>'headers'), ('sent', definition->>'sent')) AS u(name, value)
     WHERE u.value IS NOT NULL
    UNION ALL SELECT 'topic', c FROM jsonb_array_elements_text(definition->'topic'->'columns') AS c
    UNION ALL SELECT 'key', c FROM jsonb_array_elements_text(definition->'key'->'columns') AS c
  LOOP
    -- A domain has the text of its base type.
    WITH RECURSIVE typed AS (
      SELECT t.oid, t.typname, t.typtype, t.typbasetype, a.attnotnull FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
       WHERE a.attrelid = my_relation AND a.attname = use.column_name AND a.attnum > 0 AND NOT a.attisdropped
      UNION ALL
      SELECT t.oid, t.typname, t.typtype, t.typbasetype, d.attnotnull FROM typed d JOIN pg_type t ON t.oid = d.typbasetype WHERE d.typtype = 'd'
    )
    SELECT CASE WHEN y.oid < 16384 THEN y.typname::text ELSE '' END, y.typtype = 'e', y.attnotnull INTO type_name, is_enum, not_null
      FROM typed y WHERE y.typtype <> 'd';
    IF type_name IS NULL THEN
      RAISE EXCEPTION '% has no column %', my_relation, quote_ident(use.column_name) USING ERRCODE = 'undefined_column';
    END IF;
    -- The trigger would get null, and refuse every row, or lose headers.
    IF use.name <> 'order' AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = my_relation AND a.attname = use.column_name AND a.attgenerated = 'v') THEN
      RAISE EXCEPTION 'the column % of % is computed when it is read, and a trigger does not have its value', quote_ident(use.column_name), my_relation
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Make it a generated column that is STORED.';
    END IF;
    IF NOT (CASE use.name
           WHEN 'topic' THEN type_name = ANY(texts) OR is_enum
           WHEN 'key' THEN type_name = ANY(texts) OR is_enum
           WHEN 'id' THEN type_name = ANY(texts)
           WHEN 'payload' THEN type_name IN ('json', 'jsonb', 'text', 'varchar', 'bytea')
           WHEN 'headers' THEN type_name IN ('json', 'jsonb')
           ELSE true END) THEN
      RAISE EXCEPTION 'the column % of % cannot be the % of an event: it is of type %', quote_ident(use.column_name), my_relation, use.name,
                      (SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute a WHERE a.attrelid = my_relation AND a.attname = use.column_name)
        USING ERRCODE = 'datatype_mismatch', HINT = 'A generated column that is STORED can have the value as text, json or bytea.';
    END IF;
    IF use.name IN ('order', 'id') AND NOT not_null THEN
      RAISE EXCEPTION 'the column % of % can be null', quote_ident(use.column_name), my_relation
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Rows are sorted and recognized by columns that are NOT NULL.';
    END IF;
    value := format('CASE WHEN %1$s.%2$I IS NOT NULL THEN format(%3$L, %1$s.%2$I) END', my_row, use.column_name, '%s');
    CASE use.name
    WHEN 'order' THEN sorted := format('%s.%I', my_row, use.column_name);
    WHEN 'id' THEN
      id := value;
      matches := format('%s.%I = w.id::%I', my_row, use.column_name, type_name);
    WHEN 'payload' THEN
      IF type_name = 'bytea' THEN bytes := format('%s.%I', my_row, use.column_name); ELSE payload := value; END IF;
    WHEN 'headers' THEN headers := value;
    WHEN 'sent' THEN pending := format(CASE WHEN type_name = 'bool' THEN '%s.%I IS NOT TRUE' ELSE '%s.%I IS NULL' END, my_row, use.column_name);
    ELSE NULL;
    END CASE;
  END LOOP;
  IF NOT EXISTS (SELECT FROM pg_index x JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
                  WHERE x.indrelid = my_relation AND x.indisunique AND x.indisvalid AND x.indnkeyatts = 1 AND x.indpred IS NULL
                    AND a.attname = definition->>'id') THEN
    RAISE EXCEPTION 'the column % of % has no unique index of its own', quote_ident(definition->>'id'), my_relation
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Name the primary key with `id`: each row is imported once, and recognized by it.';
  END IF;
  FOREACH template IN ARRAY ARRAY['topic', 'key'] LOOP
    value := quote_literal(definition->template->'literals'->>0);
    FOR place IN 0 .. jsonb_array_length(definition->template->'columns') - 1 LOOP
      value := format('%s || CASE WHEN %2$s.%3$I IS NOT NULL THEN format(%4$L, %2$s.%3$I) END || %5$L', value, my_row,
                      definition->template->'columns'->>place, '%s', definition->template->'literals'->>(place + 1));
    END LOOP;
    IF template = 'topic' THEN topic := value; ELSE key := value; END IF;
  END LOOP;
  -- One of the two is there.
  payload := COALESCE(payload, 'NULL::text');
  bytes := COALESCE(bytes, 'NULL::bytea');
  pending := COALESCE(pending, 'true');
  headers := format('(%s || jsonb_build_object(''imported-id'', %s))::text',
                    CASE WHEN headers IS NULL THEN '''{}''::jsonb' ELSE format('COALESCE((%s)::jsonb, ''{}'')', headers) END, id);
END
$$;
