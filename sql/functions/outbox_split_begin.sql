-- What a split of a dispatcher's shards would meet; with for_ms, owners also release their shards for this time, after their current batch. It ends
-- by itself, so that a session that dies here delays owners no longer. answer: ready, no dispatcher, shards (it has as many, or more), elsewhere (its cursors
-- are another server's), held (an owner from before the last split still has a shard). owned: shards that are held now.
CREATE FUNCTION :"schema".outbox_split_begin(
  my_dispatcher text, to_shards integer, for_ms integer,
  OUT answer text, OUT shards integer, OUT owned integer, OUT parked bigint
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  d :"schema".outbox_dispatchers;
BEGIN
  SELECT * INTO d FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher;
  IF NOT FOUND THEN
    answer := 'no dispatcher';
    RETURN;
  END IF;
  shards := d.shards;
  parked := (SELECT count(*) FROM :"schema".outbox_parked p WHERE p.dispatcher = my_dispatcher);
  SELECT count(*), CASE WHEN count(*) FILTER (WHERE l.fence < d.split_fence) > 0 THEN 'held' ELSE 'ready' END INTO owned, answer
    FROM generate_series(0, d.shards - 1) AS n(shard)
    JOIN :"schema".leases l ON l.name = 'Outbox:' || my_dispatcher || ':shard:' || n.shard AND l.slot = 0
   WHERE l.token IS NOT NULL AND l.expires_at > clock_timestamp();
  IF (SELECT h.elsewhere FROM :"schema".outbox_here(my_dispatcher) AS h) THEN
    answer := 'elsewhere';
  ELSIF to_shards <= d.shards THEN
    answer := 'shards';
  END IF;
  IF for_ms IS NOT NULL AND answer = 'ready' THEN
    UPDATE :"schema".outbox_dispatchers o SET paused_until = clock_timestamp() + make_interval(secs => for_ms / 1000.0)
     WHERE o.name = my_dispatcher;
    -- Owners that rest have no lease, and need not be woken. The others learn it when they read.
    PERFORM :"schema".outbox_ring();
  END IF;
END
$$;
