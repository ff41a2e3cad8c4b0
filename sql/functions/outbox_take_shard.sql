-- Makes a shard's cursor the caller's: from here on no owner with an older fence can move it. A new dispatcher begins with the oldest
-- event that there is. The fence must have been given out in the server epoch my_life. Verdicts: taken, lost (a newer fence, or another
-- server epoch), elsewhere (the cursors were made on another server), removed (an operator has removed the dispatcher): a process
-- that was stopped meanwhile must not create its cursors again; shards (it has another number of shards than the caller knows); topics (the
-- dispatcher has another list than the caller). Lost is also what is about to be split, or was split while its owner used it: see
-- docs/decisions/0058-splitting-shards.md.
CREATE FUNCTION :"schema".outbox_take_shard(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, shard_count integer, my_topics text[]
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  c :"schema".outbox_cursors;
  here record;
  d :"schema".outbox_dispatchers;
BEGIN
  PERFORM pg_advisory_xact_lock(:"schema".outbox_shard_lock(my_dispatcher, my_shard));
  -- Waits for outbox_remove(), outbox_subscribe() and outbox_split(), and is waited for by them.
  SELECT * INTO d FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN 'removed';
  END IF;
  IF d.shards <> shard_count THEN
    RETURN 'shards';
  END IF;
  IF d.topics IS DISTINCT FROM my_topics THEN
    RETURN 'topics';
  END IF;
  SELECT * INTO here FROM :"schema".outbox_here(my_dispatcher);
  IF here.elsewhere THEN
    RETURN 'elsewhere';
  END IF;
  IF here.life IS DISTINCT FROM my_life THEN
    RETURN 'lost';
  END IF;
  IF d.paused_until > clock_timestamp()
     OR EXISTS (SELECT FROM :"schema".leases l
                 WHERE l.name = 'Outbox:' || my_dispatcher || ':shard:' || my_shard::integer * d.split_from / d.shards AND l.slot = 0
                   AND l.token IS NOT NULL AND l.expires_at > clock_timestamp() AND l.fence < d.split_fence) THEN
    RETURN 'lost';
  END IF;
  FOR try IN 1 .. 10 LOOP
    SELECT * INTO c FROM :"schema".outbox_cursors o
     WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1;
    IF c.fence >= my_fence THEN
      RETURN CASE WHEN c.fence = my_fence THEN 'taken' ELSE 'lost' END;
    END IF;
    INSERT INTO :"schema".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
    VALUES (my_dispatcher, my_shard, COALESCE(c.version, 0) + 1, my_fence, COALESCE(c.prev, '1:1:'), COALESCE(c.next, '1:1:'),
            COALESCE(c.after_id, 0), COALESCE(c.done, true), COALESCE(c.seen_id, 0))
        ON CONFLICT DO NOTHING;
    IF FOUND THEN
      RETURN 'taken';
    END IF;
  END LOOP;
  RETURN 'lost';
END
$$;
