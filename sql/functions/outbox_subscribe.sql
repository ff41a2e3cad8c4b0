-- Makes a list of topics that of a dispatcher, for all its processes. answer: same (it was), changed, held (processes run under another list),
-- idle (none does, and change is false), removed (there is no such dispatcher). Every shard gets a new fence with the change: who
-- owned one under the old list has lost it. The list applies from each cursor on; events with a position above topics_after are all under it.
-- A dispatcher without cursors has passed nothing.
CREATE FUNCTION :"schema".outbox_subscribe(
  my_name text, my_topics text[], change boolean, OUT answer text, OUT before text[], OUT topics_after bigint
)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  d :"schema".outbox_dispatchers;
  has_begun boolean;
BEGIN
  -- Waits for outbox_take_shard(), and is waited for by it.
  SELECT * INTO d FROM :"schema".outbox_dispatchers o WHERE o.name = my_name FOR UPDATE;
  IF NOT FOUND THEN
    answer := 'removed';
    RETURN;
  END IF;
  before := d.topics;
  topics_after := d.topics_after;
  IF d.topics IS NOT DISTINCT FROM my_topics THEN
    answer := 'same';
    RETURN;
  END IF;
  answer := 'held';
  has_begun := EXISTS (SELECT FROM :"schema".outbox_cursors o WHERE o.dispatcher = my_name);
  IF EXISTS (SELECT FROM :"schema".leases l
              WHERE starts_with(l.name, 'Outbox:' || my_name || ':') AND l.token IS NOT NULL AND l.expires_at > clock_timestamp()) THEN
    RETURN;
  END IF;
  IF has_begun AND NOT change THEN
    answer := 'idle';
    RETURN;
  END IF;
  PERFORM set_config('synchronous_commit', 'on', true);
  topics_after := 0;
  IF has_begun THEN
    -- As in outbox_remove(): no cursor is moved meanwhile, and a dispatcher that moves one does not wait for long.
    PERFORM set_config('lock_timeout', '2s', true);
    BEGIN
      LOCK TABLE :"schema".outbox_cursors IN SHARE ROW EXCLUSIVE MODE;
    EXCEPTION WHEN lock_not_available THEN
      RETURN;
    END;
    PERFORM set_config('lock_timeout', '0', true);
    INSERT INTO :"schema".outbox_cursors (dispatcher, shard, version, fence, prev, next, after_id, done, seen_id)
    SELECT my_name, c.shard, c.version + 1, :"schema".next_fence(), c.prev, c.next, c.after_id, c.done, c.seen_id
      FROM (SELECT DISTINCT ON (o.shard) o.* FROM :"schema".outbox_cursors o WHERE o.dispatcher = my_name
             ORDER BY o.shard, o.version DESC) AS c;
    topics_after := :"schema".outbox_position();
  END IF;
  UPDATE :"schema".outbox_dispatchers o SET topics = my_topics, topics_after = outbox_subscribe.topics_after WHERE o.name = my_name;
  INSERT INTO :"schema".outbox_audit (verb, dispatcher, seq, reason)
  VALUES ('topics', my_name, topics_after, COALESCE(array_to_string(my_topics, ', '), 'all topics'));
  answer := 'changed';
END
$$;
