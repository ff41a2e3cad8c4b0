-- Which of the 64 buckets a stream is in. Never changes: it is stored with every event.
CREATE FUNCTION :"schema".outbox_bucket(stream uuid) RETURNS smallint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT (('x' || right(stream::text, 2))::bit(8)::integer & 63)::smallint $$;
