-- Moves the cursors of several shards, each only from the version that the caller has read, with its fence, in the same server epoch. What
-- the caller remembers of an epoch that has ended (transaction ids above all) is worth nothing. This is the one place that decides it. One
-- call for all shards of a message takes 250 to 290 us, a call for each 400 (both with pg_stat_statements, which slows them down). By
-- index: a table that was emptied a moment ago looks small to the planner, which would read it from end to end.
CREATE FUNCTION :"schema".outbox_move(
  my_dispatcher text, my_shards smallint[], my_fences bigint[], my_versions bigint[], my_lives text[],
  new_prevs pg_snapshot[], new_nexts pg_snapshot[], new_afters bigint[], new_dones boolean[], new_seens bigint[]
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  here record;
  moved smallint[];
BEGIN
  -- Not before it is sent, only that it is sent: what a crash takes back is sent once more.
  PERFORM set_config('synchronous_commit', 'off', true);
  FOR i IN 1 .. cardinality(my_shards) LOOP
    PERFORM pg_advisory_xact_lock_shared(:"schema".outbox_shard_lock(my_dispatcher, my_shards[i]));
  END LOOP;
  SELECT * INTO here FROM :"schema".outbox_here(my_dispatcher);
  IF here.elsewhere THEN
    RETURN 0;
  END IF;
  WITH inserted AS (
  INSERT INTO :"schema".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
  SELECT my_dispatcher, m.shard, m.version + 1, m.fence, m.prev, m.next, m.after_id, m.done, m.seen_id
    FROM unnest(my_shards, my_fences, my_versions, my_lives, new_prevs, new_nexts, new_afters, new_dones, new_seens)
      AS m(shard, fence, version, life, prev, next, after_id, done, seen_id)
    CROSS JOIN LATERAL (SELECT o.version, o.fence FROM :"schema".outbox_cursors o
                         WHERE o.dispatcher = my_dispatcher AND o.shard = m.shard ORDER BY o.version DESC LIMIT 1) AS c
   WHERE c.version = m.version AND c.fence = m.fence AND m.life = here.life
      ON CONFLICT DO NOTHING RETURNING shard)
  SELECT array_agg(i.shard) INTO moved FROM inserted i;
  FOR i IN 1 .. cardinality(my_shards) LOOP
    -- Only behind a cursor that was moved just now: after a crash the one that the caller has read can be gone.
    IF my_versions[i] % 100 = 0 AND my_shards[i] = ANY(moved) THEN
      -- Not all that there ever were, but now and then: deleted ones stay in the index while a session holds an old snapshot.
      DELETE FROM :"schema".outbox_cursors o
       WHERE o.dispatcher = my_dispatcher AND o.shard = my_shards[i] AND o.version < my_versions[i]
         AND o.version >= my_versions[i] - CASE WHEN my_versions[i] % 10000 = 0 THEN my_versions[i] ELSE 300 END;
    END IF;
  END LOOP;
  RETURN COALESCE(cardinality(moved), 0);
END
$$;
