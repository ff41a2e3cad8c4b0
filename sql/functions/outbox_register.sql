-- Superseded by outbox_register_dispatcher() since 1.0.0.
-- For a process that knows up to 64 shards, none of which is smaller than a group of buckets.
CREATE FUNCTION :"schema".outbox_register(
  my_name text, my_shards smallint, this_system text, this_database text, this_timeline bigint,
  shards_stated boolean, my_retain_ms bigint,
  OUT shards smallint, OUT system text, OUT database text, OUT timeline bigint
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  SELECT r.shards, r.system, r.database, r.timeline INTO shards, system, database, timeline
    FROM :"schema".outbox_register_dispatcher(my_name, my_shards, this_system, this_database, this_timeline, shards_stated, my_retain_ms, NULL) AS r;
  IF shards > 64 THEN
    RAISE EXCEPTION 'the dispatcher % has % shards, and this version of pg-lockstep knows 64 at most', my_name, shards
      USING ERRCODE = 'feature_not_supported', HINT = 'Use the version of pg-lockstep that its shards were split with.';
  END IF;
END
$$;
