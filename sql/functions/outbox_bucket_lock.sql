-- The number that is locked for a bucket: shared by who writes to some of its streams, exclusively by who writes to very many.
CREATE FUNCTION :"schema".outbox_bucket_lock(bucket integer) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT :"schema".lock_id('outbox-bucket', '') # bucket::bigint $$;
