-- Superseded by inbox_accept_batch() since 1.0.0.
-- Events whose messages do not say their generation.
CREATE FUNCTION :"schema".inbox_accept_runs(
  my_consumer text, topics text[], keys text[], firsts bigint[], counts int[], uuids uuid[], starts bigint[], idle_ms int DEFAULT 0
) RETURNS TABLE (place int, verdict text, seq bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT b.place, b.verdict, b.seq
    FROM :"schema".inbox_accept_batch(my_consumer, topics, keys, firsts, counts, uuids,
                                      array_fill(NULL::bigint, ARRAY[cardinality(uuids)]), starts, idle_ms) AS b
$$;
