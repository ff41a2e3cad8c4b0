-- The consumers that have a position in any stream, each with how many streams: counted up to a limit. Their names are found one after the
-- other on the index, whatever the number of streams.
CREATE FUNCTION :"schema".inbox_consumer_list(most bigint) RETURNS TABLE (consumer text, streams bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  WITH RECURSIVE names(name) AS (
    (SELECT i.consumer FROM :"schema".inbox i ORDER BY i.consumer LIMIT 1)
    UNION ALL
    SELECT (SELECT i.consumer FROM :"schema".inbox i WHERE i.consumer > n.name ORDER BY i.consumer LIMIT 1)
      FROM names n WHERE n.name IS NOT NULL
  )
  SELECT n.name, (SELECT count(*) FROM (SELECT FROM :"schema".inbox i WHERE i.consumer = n.name LIMIT most) AS s)
    FROM names n WHERE n.name IS NOT NULL
$$;
