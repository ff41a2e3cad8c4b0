-- Numbers in progress, of a snapshot.
CREATE FUNCTION :"schema".outbox_running(given pg_snapshot) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT count(*)::integer FROM pg_snapshot_xip(given) $$;
