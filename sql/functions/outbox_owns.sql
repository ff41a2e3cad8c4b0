-- Whether the caller owns the shard, in the server epoch in which it read what it goes by. After an asynchronous failover the same
-- fence can still be in the cursor, and the same numbers can name other events.
CREATE FUNCTION :"schema".outbox_owns(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
  SELECT COALESCE((SELECT o.fence = my_fence FROM :"schema".outbox_cursors o
                    WHERE o.dispatcher = my_dispatcher AND o.shard = my_shard ORDER BY o.version DESC LIMIT 1), false)
     AND EXISTS (SELECT FROM :"schema".outbox_here(my_dispatcher) AS h WHERE h.life = my_life AND NOT h.elsewhere)
$$;
