-- Writes names of locks down: a list of pairs of id and key. The rows come in ascending order of id, so that two processes never wait for
-- each other in a circle. A number that is not the key's is left out: one role must not rename another's locks. A name that was seen a
-- moment ago is not written again.
CREATE FUNCTION :"schema".lock_names_record(names json) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  INSERT INTO :"schema".lock_names AS known (id, key)
  SELECT given.id, given.key
    FROM (SELECT (name ->> 0)::bigint AS id, name ->> 1 AS key FROM json_array_elements(names) AS n(name)) AS given
   WHERE given.id = :"schema".lock_id('lock', given.key)
   ORDER BY given.id
      ON CONFLICT (id) DO UPDATE SET key = excluded.key, seen_at = excluded.seen_at
   WHERE known.seen_at < excluded.seen_at - interval '4 minutes'
$$;
