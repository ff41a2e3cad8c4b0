-- What an import would find: pending rows that are not planned yet, their streams, and rows that the outbox would refuse, with the ids of some.
-- It reads the whole table.
CREATE FUNCTION :"schema".outbox_import_preview(
  my_relation regclass, definition jsonb, my_import integer,
  OUT pending_rows bigint, OUT streams bigint, OUT topics bigint, OUT refused bigint, OUT refused_ids text[]
)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  p record;
BEGIN
  SELECT * INTO p FROM :"schema".outbox_import_parts(my_relation, definition, 'r');
  EXECUTE $q$SELECT count(*), count(DISTINCT (v.topic, v.key)), count(DISTINCT v.topic), count(*) FILTER (WHERE v.bad), (array_agg(v.id ORDER BY v.sorted) FILTER (WHERE v.bad))[1:10]
             FROM (SELECT t.*, :"schema".outbox_import_fault(t.topic, t.key, t.payload, t.bytes, t.headers) IS NOT NULL AS bad
                     FROM (SELECT $q$ || p.id || $q$ AS id, $q$ || p.sorted || $q$ AS sorted, $q$ || p.topic || $q$ AS topic, $q$ || p.key || $q$ AS key, $q$ || p.payload || $q$ AS payload, $q$
                            || p.bytes || $q$ AS bytes, $q$ || p.headers || $q$ AS headers FROM $q$ || my_relation || $q$ r WHERE $q$ || p.pending || $q$) AS t
                    WHERE NOT EXISTS (SELECT FROM :"schema".outbox_import_rows w WHERE w.import = $1 AND w.id = t.id)) AS v$q$
     INTO pending_rows, streams, topics, refused, refused_ids USING my_import;
END
$$;
