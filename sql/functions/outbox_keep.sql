-- Writes down the last numbers of streams that have nothing newer than a segment which is to go, and since when they are there. Not in
-- the step that empties its slot: pg_dump has its snapshot a while before it has locked the tables, and a TRUNCATE is seen by older
-- snapshots, too. Such a dump would have neither the events nor the numbers, and what it is restored to would give them out again.
--
-- One call is a step of a tenth of a second, less under a short statement_timeout: `more` says that another one is needed. A segment of
-- a sealed slot does not change any more, so that a step continues where the last one has stopped, from stream to stream on the index: it costs
-- the same however many events each has. Segments are done in their order, one after the other: a stream's last number is that of its
-- last segment, and must be the last to go.
CREATE FUNCTION :"schema".outbox_keep(min_age interval, OUT readied integer, OUT more boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  streams_at_once CONSTANT integer := 200;
  age interval := COALESCE(min_age, :"schema".outbox_retention());
  passed xid8 := :"schema".outbox_passed();
  timeout interval := current_setting('statement_timeout')::interval;
  until timestamptz := clock_timestamp() + CASE WHEN timeout > '0' THEN least(timeout / 4, interval '0.1 s') ELSE interval '0.1 s' END;
  s :"schema".outbox_segments;
  found_streams integer;
  at uuid;
  top bigint;
BEGIN
  readied := 0;
  more := false;
  IF passed IS NULL OR age IS NULL OR NOT pg_try_advisory_xact_lock(:"schema".lock_id('outbox-retain', 'Outbox:rotate')) THEN
    RETURN;
  END IF;
  FOR s IN SELECT * FROM :"schema".outbox_segments g ORDER BY g.number LOOP
    CONTINUE WHEN s.kept_at IS NOT NULL;
    EXIT WHEN NOT COALESCE(s.sealed_xid <= passed AND s.left_at <= clock_timestamp() - (age - least(age, interval '1 minute')), false);
    LOOP
      EXECUTE format($walk$
        WITH RECURSIVE walk AS (
          (SELECT e.stream, e.topic, e.key, e.seq, e.id FROM %1$I.outbox_events_%2$s e
            WHERE e.stream < $1 ORDER BY e.stream DESC, e.seq DESC LIMIT 1)
          UNION ALL
          SELECT n.* FROM walk w CROSS JOIN LATERAL (
            SELECT e.stream, e.topic, e.key, e.seq, e.id FROM %1$I.outbox_events_%2$s e
             WHERE e.stream < w.stream ORDER BY e.stream DESC, e.seq DESC LIMIT 1) AS n
        ), streams AS MATERIALIZED (SELECT * FROM walk LIMIT $2),
        kept AS (
          INSERT INTO %1$I.outbox_quiet AS q (stream, topic, key, seq)
          SELECT w.stream, w.topic, w.key, w.seq FROM streams w
           -- By its index for each: as NOT EXISTS it may be joined with all events that there are.
           WHERE (SELECT true FROM %1$I.outbox_events later
                   WHERE later.stream = w.stream AND later.slot <> %2$s AND later.seq > w.seq LIMIT 1) IS NULL
              ON CONFLICT (stream) DO UPDATE SET seq = greatest(q.seq, EXCLUDED.seq)
        )
        SELECT count(*), (array_agg(w.stream ORDER BY w.stream))[1], max(w.id) FROM streams w
      $walk$, :'schema', s.slot) INTO found_streams, at, top USING COALESCE(s.kept_stream, 'ffffffff-ffff-ffff-ffff-ffffffffffff'), streams_at_once;
      s.kept_stream := COALESCE(at, s.kept_stream);
      s.last_id := greatest(s.last_id, top);
      EXIT WHEN found_streams < streams_at_once;
      more := clock_timestamp() >= until;
      EXIT WHEN more;
    END LOOP;
    -- From the last moment on: it may have taken long.
    UPDATE :"schema".outbox_segments g
       SET kept_stream = s.kept_stream, last_id = s.last_id, kept_at = CASE WHEN NOT more THEN clock_timestamp() END
     WHERE g.slot = s.slot;
    EXIT WHEN more;
    readied := readied + 1;
    more := clock_timestamp() >= until;
    EXIT WHEN more;
  END LOOP;
END
$$;
