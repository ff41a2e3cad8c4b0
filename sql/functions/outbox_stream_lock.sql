-- The number that is locked for a stream.
CREATE FUNCTION :"schema".outbox_stream_lock(stream uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT ('x' || left(replace(stream::text, '-', ''), 16))::bit(64)::bigint $$;
