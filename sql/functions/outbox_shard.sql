-- Which shard of a dispatcher a bucket belongs to. The number of shards divides 64, so that a shard has whole groups, each an equal number.
CREATE FUNCTION :"schema".outbox_shard(bucket smallint, shards smallint) RETURNS smallint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT (bucket::integer * shards / 1024)::smallint $$;
