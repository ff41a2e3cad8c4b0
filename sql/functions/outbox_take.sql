-- Superseded by outbox_take_shard() since 1.0.0.
-- For a process that knows no topics, and wants all.
CREATE FUNCTION :"schema".outbox_take(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, shard_count integer
) RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT CASE v.verdict WHEN 'topics' THEN 'lost' WHEN 'shards' THEN 'removed' ELSE v.verdict END
    FROM :"schema".outbox_take_shard(my_dispatcher, my_shard, my_fence, my_life, shard_count, NULL) AS v(verdict)
$$;
