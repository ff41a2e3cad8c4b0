-- The cut: from its COMMIT on, every row of the table has an event. The trigger comes first: it locks the table against writers and waits for those
-- that are open, so that what is planned below is all that there is. False: too much is left for writers to wait for; the caller rolls back.
CREATE FUNCTION :"schema".outbox_import_cut(my_import integer, most integer) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  i :"schema".outbox_imports;
  p record;
  body text;
BEGIN
  SELECT * INTO i FROM :"schema".outbox_imports o WHERE o.id = my_import FOR UPDATE;
  IF i.cut_at IS NOT NULL THEN
    RETURN true;
  END IF;
  SELECT * INTO p FROM :"schema".outbox_import_parts(i.relation::regclass, i.definition, 'NEW');
  body := $q$BEGIN
  IF $q$ || p.pending || $q$ THEN
    PERFORM $q$
    || CASE WHEN p.bytes = 'NULL::bytea' THEN $q$:"schema".enqueue($q$ || p.topic || ', ' || p.key || ', (' || p.payload || ')::json'
            ELSE $q$:"schema".enqueue_bytes($q$ || p.topic || ', ' || p.key || ', ' || p.bytes END
    || ', (' || p.headers || $q$)::json);
  END IF;
  RETURN NULL;
END$q$;
  EXECUTE format('CREATE OR REPLACE FUNCTION %I.%I() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L', :'schema', 'outbox_import_' || my_import, body);
  EXECUTE format('REVOKE ALL ON FUNCTION %I.%I() FROM PUBLIC', :'schema', 'outbox_import_' || my_import);
  EXECUTE format('CREATE TRIGGER %I AFTER INSERT ON %s FOR EACH ROW EXECUTE FUNCTION %I.%I()',
                 'lockstep_import_' || my_import, i.relation, :'schema', 'outbox_import_' || my_import);
  -- A superuser's function would run with its rights.
  EXECUTE format('ALTER FUNCTION %I.%I() OWNER TO %I', :'schema', 'outbox_import_' || my_import,
                 (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace n WHERE n.nspname = :'schema'));
  IF :"schema".outbox_import_plan(my_import) > most THEN
    RETURN false;
  END IF;
  PERFORM :"schema".outbox_import_copy(my_import, most);
  UPDATE :"schema".outbox_imports o SET cut_at = clock_timestamp() WHERE o.id = my_import;
  INSERT INTO :"schema".outbox_audit (verb, reason) VALUES ('import', format('%s: %s', i.relation, i.reason));
  RETURN true;
END
$$;
