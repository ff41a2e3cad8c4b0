-- Makes a shard's cursor the caller's: from here on nobody with an older fence can move it. A new dispatcher begins with the oldest
-- event that there is. The fence must have been given out in the server epoch my_life. Verdicts: taken, lost (a newer fence, or another
-- server epoch), elsewhere (the cursors were made on another server), removed (an operator has removed the dispatcher, or it was
-- registered again with another number of shards): a process that was stopped meanwhile must not create its cursors again; topics (the
-- dispatcher has another list than the caller).
CREATE FUNCTION :"schema".outbox_take_shard(
  my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, shard_count integer, my_topics text[]
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  c :"schema".outbox_cursors;
  here record;
  topics text[];
BEGIN
  PERFORM pg_advisory_xact_lock(:"schema".outbox_shard_lock(my_dispatcher, my_shard));
  -- Waits for outbox_remove() and outbox_subscribe(), and is waited for by them.
  SELECT d.topics INTO topics FROM :"schema".outbox_dispatchers d WHERE d.name = my_dispatcher AND d.shards = shard_count FOR KEY SHARE;
  IF NOT FOUND THEN
    RETURN 'removed';
  END IF;
  IF topics IS DISTINCT FROM my_topics THEN
    RETURN 'topics';
  END IF;
  SELECT * INTO here FROM :"schema".outbox_here(my_dispatcher);
  IF here.elsewhere THEN
    RETURN 'elsewhere';
  END IF;
  IF here.life IS DISTINCT FROM my_life THEN
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
