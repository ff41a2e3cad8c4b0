-- Which shard of a dispatcher a bucket belongs to: shards are ranges of buckets, all of one size. Up to 64 of them have whole groups.
CREATE FUNCTION :"schema".outbox_shard(bucket smallint, shards smallint) RETURNS smallint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT (bucket::integer * shards / 1024)::smallint $$;
