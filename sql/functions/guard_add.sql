-- Ties a table to a key: makes the trigger function, its counters and the triggers, or repairs those of a guard that exists. Called by the
-- owner of the schema, who needs TRIGGER on the table. The key is literals[1] || column 1 || literals[2] || column 2 and so on.
CREATE FUNCTION :"schema".guard_add(
  my_relation regclass, my_key text, my_literals text[], my_columns text[], my_held text, my_mode text, my_percent integer, my_reason text
) RETURNS integer
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  my_name text;
  my_guard integer;
  target record;
  attribute record;
  of_old text;
  of_new text;
  of_row text;
  same text := 'true';
  part text;
  quick text;
  checks text;
  body text;
  counter text;
  part_of record;
BEGIN
  SELECT n.nspname, c.relname, c.relkind, c.relpersistence INTO target
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = my_relation;
  my_name := format('%I.%I', target.nspname, target.relname);
  IF target.relkind NOT IN ('r', 'p') OR target.relpersistence = 't' THEN
    RAISE EXCEPTION '% cannot have a guard: it is not a table, or a temporary one', my_name USING ERRCODE = 'wrong_object_type';
  END IF;
  IF target.nspname = ANY (ARRAY['pg_catalog', :'schema', 'information_schema']) THEN
    RAISE EXCEPTION '% cannot have a guard: it belongs to Lockstep or to PostgreSQL', my_name USING ERRCODE = 'wrong_object_type';
  END IF;
  of_old := quote_literal(my_literals[1]);
  of_new := of_old;
  FOR place IN 1..coalesce(array_length(my_columns, 1), 0) LOOP
    -- A domain has the text of its base type.
    WITH RECURSIVE typed AS (
      SELECT a.attname, t.oid, t.typname, t.typtype, t.typbasetype
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
       WHERE a.attrelid = my_relation AND a.attname = my_columns[place] AND a.attnum > 0 AND NOT a.attisdropped
      UNION ALL
      SELECT d.attname, t.oid, t.typname, t.typtype, t.typbasetype FROM typed d JOIN pg_type t ON t.oid = d.typbasetype
       WHERE d.typtype = 'd'
    )
    SELECT attname, typname::text AS typname, typtype, oid < 16384 AS own INTO attribute FROM typed WHERE typtype <> 'd';
    IF attribute.attname IS NULL THEN
      RAISE EXCEPTION '% has no column %', my_name, quote_ident(my_columns[place]) USING ERRCODE = 'undefined_column';
    END IF;
    -- Types whose text depends on no setting of the session.
    IF attribute.own AND attribute.typname IN ('int2', 'int4', 'int8', 'uuid', 'numeric') THEN
      part := '%s::text';
    ELSIF (attribute.own AND attribute.typname IN ('text', 'varchar', 'bpchar')) OR attribute.typtype = 'e' THEN
      part := $e$replace(replace(%s::text, '%%', '%%25'), ':', '%%3A')$e$;
    ELSE
      RAISE EXCEPTION 'the column % of % is of type %, which a key cannot have', quote_ident(my_columns[place]), my_name, attribute.typname
        USING ERRCODE = 'datatype_mismatch', HINT = 'Use a column of type integer, bigint, uuid, numeric, text or an enum. A generated column can have the text of another one.';
    END IF;
    of_old := format('%s || %s || %L', of_old, format(part, format('OLD.%I', attribute.attname)), my_literals[place + 1]);
    of_new := format('%s || %s || %L', of_new, format(part, format('NEW.%I', attribute.attname)), my_literals[place + 1]);
    of_row := concat_ws(' || ', of_row, format(part, format('coalesce(NEW.%1$I, OLD.%1$I)', attribute.attname)),
                        nullif(quote_literal(my_literals[place + 1]), quote_literal('')));
    -- Equal numbers can have different texts, and so can equal texts of some collations.
    same := format('%1$s AND (NEW.%2$I%3$s = OLD.%2$I%3$s) IS NOT FALSE', same, attribute.attname,
                   CASE WHEN attribute.own AND attribute.typname IN ('int2', 'int4', 'int8', 'uuid') THEN '' ELSE '::text COLLATE "C"' END);
  END LOOP;

  -- A table that was renamed has its triggers still; a table that has taken its name has none.
  SELECT g.id INTO my_guard FROM :"schema".guards g WHERE g.relation = my_name AND g.key = my_key FOR UPDATE;
  IF my_guard IS NULL THEN
    SELECT g.id INTO my_guard
      FROM :"schema".guards g JOIN pg_trigger t ON t.tgname = 'lockstep_guard_' || g.id AND t.tgrelid = my_relation AND t.tgparentid = 0
     WHERE g.key = my_key LIMIT 1;
  END IF;
  IF my_guard IS NULL THEN
    INSERT INTO :"schema".guards (relation, key, columns, held, mode, percent, reason)
    VALUES (my_name, my_key, my_columns, my_held, coalesce(my_mode, 'observe'), my_percent, my_reason) RETURNING id INTO my_guard;
  ELSE
    UPDATE :"schema".guards g
       SET relation = my_name, columns = my_columns, held = my_held, changed_at = clock_timestamp(),
           mode = coalesce(my_mode, g.mode), percent = CASE WHEN my_mode IS NULL THEN g.percent ELSE my_percent END,
           reason = CASE WHEN my_mode IS NULL THEN g.reason ELSE my_reason END
     WHERE g.id = my_guard;
  END IF;

  -- The quick way: what the transaction states is read, and nothing else. It is one expression, because PL/pgSQL prepares every expression again
  -- in every transaction. It has the hash of lock_id() with its constant part as a literal, and no number is made of the digits, which saves a
  -- third of it. OLD is null in an INSERT and NEW in a DELETE, so that one expression serves all three; an
  -- UPDATE passes here only if it leaves the key as it is, or a part of it is or was NULL. A key with a NULL in it is no key, and passes.
  quick := format($b$
  IF strpos(current_setting('lockstep.held', true), encode(substr(sha256(%L::bytea || convert_to(%s, 'UTF8')), 1, 8), 'hex')) > 0
     AND %s THEN
    RETURN NULL;
  END IF;$b$, :b'schema' || decode('00', 'hex') || convert_to(my_held, 'UTF8') || decode('00', 'hex') || convert_to(my_literals[1], 'UTF8'),
    coalesce(of_row, quote_literal('')), same);
  checks := format($b$
  IF TG_OP <> 'INSERT' THEN
    old_key := %3$s;
    IF strpos(held, encode(int8send(:"schema".lock_id(%1$L, old_key)), 'hex')) = 0 THEN
      PERFORM :"schema".guard_missed(%2$s, TG_OP, old_key);
    END IF;
  END IF;
  IF TG_OP <> 'DELETE' THEN
    new_key := %4$s;
    IF new_key IS DISTINCT FROM old_key AND strpos(held, encode(int8send(:"schema".lock_id(%1$L, new_key)), 'hex')) = 0 THEN
      PERFORM :"schema".guard_missed(%2$s, TG_OP, new_key);
    END IF;
  END IF;$b$, my_held, my_guard, of_old, of_new);
  body := format($b$
DECLARE
  held text;
  old_key text;
  new_key text;
BEGIN%s
  held := coalesce(current_setting('lockstep.held', true), '');
  IF TG_OP = 'TRUNCATE' THEN
    %s
    RETURN NULL;
  END IF;%s
  RETURN NULL;
END$b$,
    quick, CASE WHEN coalesce(array_length(my_columns, 1), 0) > 0
      THEN format('PERFORM :"schema".guard_missed(%s, TG_OP, NULL);', my_guard)
      ELSE format($t$IF strpos(held, encode(int8send(:"schema".lock_id(%1$L, %2$s)), 'hex')) = 0 THEN
      PERFORM :"schema".guard_missed(%3$s, TG_OP, %2$s);
    END IF;$t$, my_held, of_old, my_guard) END, checks);
  EXECUTE format('CREATE OR REPLACE FUNCTION %I.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L', :'schema', 'guard_' || my_guard, body);
  EXECUTE format('REVOKE ALL ON FUNCTION %I.%I() FROM PUBLIC', :'schema', 'guard_' || my_guard);
  FOREACH counter IN ARRAY ARRAY['unlocked', 'listed', 'refused'] LOOP
    EXECUTE format('CREATE SEQUENCE IF NOT EXISTS %I.%I', :'schema', 'guard_' || my_guard || '_' || counter);
  END LOOP;

  -- TRUNCATE of a partition does not fire a trigger of its parent.
  FOR part_of IN
    SELECT my_relation AS relation
    UNION SELECT p.relid FROM pg_partition_tree(my_relation) p
  LOOP
    IF part_of.relation = my_relation THEN
      PERFORM :"schema".guard_trigger(my_guard, part_of.relation, 'lockstep_guard_' || my_guard, 'AFTER INSERT OR UPDATE OR DELETE', 'ROW');
    END IF;
    PERFORM :"schema".guard_trigger(my_guard, part_of.relation, 'lockstep_guard_' || my_guard || '_truncate', 'BEFORE TRUNCATE', 'STATEMENT');
  END LOOP;
  RETURN my_guard;
END
$$;
