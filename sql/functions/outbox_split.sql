-- Splits every shard of a dispatcher, in one transaction: each new shard begins with a copy of the cursor of the one that it was a part of, with a new
-- fence and a version above all others. So an owner from before it can neither move a cursor nor read, and outbox_take_shard() assigns the parts of
-- its shard to no other process while its lease lasts. answer: done, changed (it has another number of shards by now), held (an owner from before the last split
-- still has a shard), busy (a cursor is being moved for longer than that should take).
CREATE FUNCTION :"schema".outbox_split(my_dispatcher text, from_shards integer, to_shards integer, my_reason text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  d :"schema".outbox_dispatchers;
  parts integer := to_shards / from_shards;
  -- Larger than that of any owner so far, smaller than that of any new cursor.
  border bigint;
  top bigint;
BEGIN
  IF to_shards NOT IN (2, 4, 8, 16, 32, 64, 128, 256, 512) OR to_shards <= from_shards OR to_shards % from_shards <> 0 THEN
    RAISE EXCEPTION 'shards can be split into 2, 4, 8, 16, 32, 64, 128, 256 or 512, and only into more' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  PERFORM set_config('synchronous_commit', 'on', true);
  PERFORM set_config('lock_timeout', '2s', true);
  BEGIN
    -- In the order of outbox_take_shard(): waits for what owners have begun, such as tries of parked streams.
    FOR n IN 0 .. from_shards - 1 LOOP
      PERFORM pg_advisory_xact_lock(:"schema".outbox_shard_lock(my_dispatcher, n::smallint));
    END LOOP;
    SELECT * INTO d FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher FOR UPDATE;
    IF d.shards IS DISTINCT FROM from_shards THEN
      RETURN 'changed';
    END IF;
    -- As in outbox_remove(): no cursor is moved meanwhile.
    LOCK TABLE :"schema".outbox_cursors IN SHARE ROW EXCLUSIVE MODE;
  EXCEPTION WHEN lock_not_available THEN
    RETURN 'busy';
  END;
  PERFORM set_config('lock_timeout', '0', true);
  IF EXISTS (SELECT FROM generate_series(0, from_shards - 1) AS n(shard)
               JOIN :"schema".leases l ON l.name = 'Outbox:' || my_dispatcher || ':shard:' || n.shard AND l.slot = 0
              WHERE l.token IS NOT NULL AND l.expires_at > clock_timestamp() AND l.fence < d.split_fence) THEN
    RETURN 'held';
  END IF;
  border := :"schema".next_fence();
  top := (SELECT max(o.version) FROM :"schema".outbox_cursors o WHERE o.dispatcher = my_dispatcher);
  -- A shard without a cursor has none afterwards: it begins with the oldest event.
  WITH old AS MATERIALIZED (
    SELECT DISTINCT ON (o.shard) o.* FROM :"schema".outbox_cursors o WHERE o.dispatcher = my_dispatcher ORDER BY o.shard, o.version DESC
  ), gone AS (
    DELETE FROM :"schema".outbox_cursors o WHERE o.dispatcher = my_dispatcher
  )
  INSERT INTO :"schema".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
  SELECT my_dispatcher, c.shard * parts + n.part, top + 1, :"schema".next_fence(), c.prev, c.next, c.after_id, c.done, c.seen_id
    FROM old c CROSS JOIN generate_series(0, parts - 1) AS n(part);
  UPDATE :"schema".outbox_parked p SET shard = :"schema".outbox_shard(:"schema".outbox_bucket(p.stream), to_shards::smallint)
   WHERE p.dispatcher = my_dispatcher;
  UPDATE :"schema".outbox_dispatchers o SET shards = to_shards, split_from = from_shards, split_fence = border, paused_until = NULL
   WHERE o.name = my_dispatcher;
  INSERT INTO :"schema".outbox_audit (verb, dispatcher, reason)
  VALUES (format('split %s to %s', from_shards, to_shards), my_dispatcher, my_reason);
  PERFORM :"schema".outbox_ring();
  RETURN 'done';
END
$$;
