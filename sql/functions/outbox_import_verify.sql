-- Compares what was copied with what is in the outbox: missing, rows whose number is not the event of their id; late, rows that were committed behind
-- the row before them in their stream though their value of the order column is smaller; sent, copied rows that were marked as sent or deleted afterwards: the old
-- relay still runs. Events that retention has removed are not looked for.
CREATE FUNCTION :"schema".outbox_import_verify(my_import integer, OUT streams bigint, OUT missing bigint, OUT late bigint, OUT sent bigint)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  i :"schema".outbox_imports;
  p record;
BEGIN
  SELECT * INTO i FROM :"schema".outbox_imports o WHERE o.id = my_import;
  SELECT * INTO p FROM :"schema".outbox_import_parts(i.relation::regclass, i.definition, 'r');
  SELECT count(DISTINCT w.stream), count(*) FILTER (WHERE (e.headers->>'imported-id') IS DISTINCT FROM w.id AND NOT COALESCE(e.erased, false))
    INTO streams, missing
    FROM :"schema".outbox_import_rows w LEFT JOIN :"schema".outbox_events e ON e.stream = w.stream AND e.seq = w.seq
   WHERE w.import = my_import AND w.seq IS NOT NULL
     AND (e.id IS NOT NULL OR (SELECT h.emptied_id FROM :"schema".outbox_home h) = 0);
  EXECUTE $q$SELECT count(*) FILTER (WHERE v.sorted < v.before), count(*) FILTER (WHERE NOT v.pending)
             FROM (SELECT t.sorted, t.pending, lag(t.sorted) OVER (PARTITION BY t.stream ORDER BY t.seq) AS before
                     FROM (SELECT w.stream, w.seq, $q$ || p.sorted || $q$ AS sorted, ($q$ || p.id || $q$) IS NOT NULL AND ($q$ || p.pending || $q$) AS pending
                             FROM :"schema".outbox_import_rows w LEFT JOIN $q$ || i.relation || $q$ r ON $q$ || p.matches || $q$
                            WHERE w.import = $1 AND w.seq IS NOT NULL) AS t) AS v$q$
     INTO late, sent USING my_import;
END
$$;
