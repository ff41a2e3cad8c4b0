-- Appends the next planned rows to the outbox, with the progress, in one transaction. Rows that are no longer there, or were sent
-- meanwhile, are counted as gone. Returns how
-- many rows are left.
CREATE FUNCTION :"schema".outbox_import_copy(my_import integer, most integer) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  i :"schema".outbox_imports;
  p record;
  next_copied bigint;
  places bigint[];
  topics text[];
  keys text[];
  payloads text[];
  all_bytes bytea[];
  all_headers text[];
  all_streams uuid[];
  streams uuid[];
  lasts bigint[];
BEGIN
  PERFORM set_config('synchronous_commit', 'on', true);
  SELECT * INTO i FROM :"schema".outbox_imports o WHERE o.id = my_import FOR UPDATE;
  SELECT * INTO p FROM :"schema".outbox_import_parts(i.relation::regclass, i.definition, 'r');
  next_copied := least(i.copied + most, i.planned);
  EXECUTE $q$WITH wanted AS MATERIALIZED (
             SELECT w.place, w.id FROM :"schema".outbox_import_rows w WHERE w.import = $1 AND w.place > $2 AND w.place <= $3
           ), found AS (
             SELECT w.place, $q$ || p.topic || $q$ AS topic, $q$ || p.key || $q$ AS key, $q$ || p.payload || $q$ AS payload, $q$ || p.bytes || $q$ AS bytes, $q$
                    || p.headers || $q$ AS headers FROM wanted w JOIN $q$ || i.relation || $q$ r ON $q$ || p.matches || $q$ AND $q$ || p.pending || $q$
           )
           SELECT array_agg(f.place ORDER BY f.place), array_agg(f.topic ORDER BY f.place), array_agg(f.key ORDER BY f.place),
                  array_agg(f.payload ORDER BY f.place), array_agg(f.bytes ORDER BY f.place), array_agg(f.headers ORDER BY f.place),
                  array_agg(:"schema".outbox_stream(f.topic, f.key) ORDER BY f.place) FROM found f$q$
     INTO places, topics, keys, payloads, all_bytes, all_headers, all_streams USING my_import, i.copied, next_copied;
  IF places IS NOT NULL THEN
    -- Of a row without a name it says so.
    PERFORM :"schema".outbox_check_names(g.topic, g.key) FROM unnest(topics, keys) AS g(topic, key) WHERE g.topic IS NULL OR g.key IS NULL;
    streams := ARRAY(SELECT DISTINCT s FROM unnest(all_streams) AS s);
    PERFORM :"schema".outbox_lock_streams(streams);
    -- As outbox_append_many_at() numbers them, under the same locks.
    lasts := :"schema".outbox_last(streams);
    PERFORM :"schema".outbox_append_many_at(topics, keys, payloads, all_bytes, all_headers, NULL, true);
    UPDATE :"schema".outbox_import_rows w SET stream = n.stream, seq = n.seq
      FROM (SELECT g.place, g.stream, l.last + row_number() OVER (PARTITION BY g.stream ORDER BY g.n) AS seq
              FROM unnest(places, all_streams) WITH ORDINALITY AS g(place, stream, n) JOIN unnest(streams, lasts) AS l(stream, last) ON l.stream = g.stream) AS n
     WHERE w.import = my_import AND w.place = n.place;
    -- So rarely that it may be in the transaction.
    PERFORM :"schema".outbox_ring();
  END IF;
  UPDATE :"schema".outbox_imports o
     SET copied = next_copied, gone = i.gone + (next_copied - i.copied) - COALESCE(cardinality(places), 0) WHERE o.id = my_import;
  RETURN i.planned - next_copied;
END
$$;
