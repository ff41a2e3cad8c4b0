-- compatible-from: 1
-- The inbox: how far each consumer is in each stream, one row each, moved in the consumer's own transaction. Every event updates a
-- row that is there already: half of each page is left free, so that its new version finds room beside the old one and no index is
-- touched. COLLATE "C": names are compared byte by byte, whatever the database's collation.
CREATE TABLE :"schema".inbox (
  consumer text COLLATE "C" NOT NULL,
  topic text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  -- The last number that was accepted; one below the first where none was yet.
  seq bigint NOT NULL CHECK (seq >= 0),
  -- Its event's; null where none was accepted yet.
  uuid uuid,
  PRIMARY KEY (consumer, topic, key)
) WITH (fillfactor = 50);

-- Takes an event if it is the next one: first, tombstone, duplicate, diverged, or gap:<the number that is expected>. A gap writes
-- nothing, also where the caller catches it and commits. start counts only for a stream without a row. A call that comes while another transaction is at the same stream waits for its end, before anything is said that
-- depends on it; above READ COMMITTED it fails with 40001 instead of answering from an old snapshot.
-- enable_seqscan: a scan of a small table would, at SERIALIZABLE, be a read of all streams.
CREATE FUNCTION :"schema".inbox_accept(
  my_consumer text, my_topic text, my_key text, my_seq bigint, my_uuid uuid, tombstone boolean DEFAULT false, start bigint DEFAULT 1
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
  taken text := CASE WHEN tombstone THEN 'tombstone' ELSE 'first' END;
  last_seq bigint;
  last_uuid uuid;
BEGIN
  IF my_uuid IS NULL OR (my_seq >= 1 AND start >= 1) IS NOT TRUE THEN
    RAISE EXCEPTION 'an event needs a uuid, a number from 1 on and a start from 1 on' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  LOOP
    UPDATE :"schema".inbox i SET seq = my_seq, uuid = my_uuid
     WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key AND i.seq = my_seq - 1;
    IF FOUND THEN
      RETURN taken;
    END IF;
    SELECT i.seq, i.uuid INTO last_seq, last_uuid FROM :"schema".inbox i
     WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key;
    IF NOT FOUND THEN
      -- Also where the event does not begin the stream: this waits for a transaction that begins it just now.
      INSERT INTO :"schema".inbox (consumer, topic, key, seq, uuid)
      VALUES (my_consumer, my_topic, my_key, CASE WHEN my_seq = start THEN my_seq ELSE start - 1 END,
              CASE WHEN my_seq = start THEN my_uuid END)
          ON CONFLICT DO NOTHING;
      IF FOUND THEN
        IF my_seq > start THEN
          -- No transaction has begun the stream, and this event does not: with a row left behind, no other start would count.
          DELETE FROM :"schema".inbox i WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key;
          RETURN 'gap:' || start;
        END IF;
        RETURN CASE WHEN my_seq = start THEN taken ELSE 'duplicate' END;
      END IF;
    ELSIF my_seq <= last_seq THEN
      -- Committed, or this transaction's own: rows only move on.
      RETURN CASE WHEN my_seq = last_seq AND last_uuid <> my_uuid THEN 'diverged' ELSE 'duplicate' END;
    ELSE
      -- The one before may be at work in another transaction.
      SELECT i.seq INTO last_seq FROM :"schema".inbox i
       WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key FOR NO KEY UPDATE;
      IF FOUND AND my_seq > last_seq + 1 THEN
        RETURN 'gap:' || (last_seq + 1);
      END IF;
    END IF;
  END LOOP;
END
$$;

-- Takes many events at once, of a consumer's streams that are not twice in it: a run of consecutive numbers of each, from first on, as
-- many as counts says; uuids are those of all runs, one after the other; starts count for streams without a row. Of a run that is all
-- new and the next one nothing is said. Of others: their place among the runs, where the consumer was before, and what became of them.
-- accepted: the position is now at the last number, what is above the old one is new; duplicate: all of it was accepted before;
-- diverged: it was, and not with this uuid; gap: numbers are missing.
-- Rows are locked in the order of their names. A transaction whose client has stopped keeps them no longer than idle_ms: the session
-- ends. The rows are found one by one (LATERAL) and moved by their address: joined by name, the planner, who cannot know how long the
-- arrays are nor, before the first ANALYZE, the table, took 250 ms for 500 streams. This takes 4 ms; an UPDATE for each 8 ms.
CREATE FUNCTION :"schema".inbox_accept_runs(
  my_consumer text, topics text[], keys text[], firsts bigint[], counts int[], uuids uuid[], starts bigint[], idle_ms int DEFAULT 0
) RETURNS TABLE (place int, verdict text, seq bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
AS $$
DECLARE
  idle_now CONSTANT numeric := extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000;
  moved int[];
  is_moved boolean[];
  run record;
  last_uuid uuid;
  begins boolean;
BEGIN
  IF idle_ms > 0 AND (idle_now = 0 OR idle_now > idle_ms) THEN
    PERFORM set_config('idle_in_transaction_session_timeout', idle_ms::text, true);
  END IF;
  IF array_position(uuids, NULL) IS NOT NULL OR cardinality(uuids) <> (SELECT sum(c) FROM unnest(counts) c)
     OR EXISTS (SELECT FROM unnest(topics, firsts, counts, starts) r (topic, first, count, start)
                 WHERE (r.topic IS NOT NULL AND r.first >= 1 AND r.count >= 1 AND r.start >= 1) IS NOT TRUE) THEN
    RAISE EXCEPTION 'a run needs a stream, numbers from 1 on, a uuid for each, and a start from 1 on'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  WITH done AS (
    UPDATE :"schema".inbox i SET seq = r.last, uuid = uuids[r.past]
      FROM (SELECT u.place, u.first, u.first + u.count - 1 AS last, u.past, l.tid
              FROM (SELECT n.*, sum(n.count) OVER (ORDER BY n.place)::int AS past
                      FROM unnest(topics, keys, firsts, counts) WITH ORDINALITY n (topic, key, first, count, place)
                     ORDER BY n.topic COLLATE "C", n.key COLLATE "C") u
             CROSS JOIN LATERAL (SELECT j.ctid AS tid FROM :"schema".inbox j
                                  WHERE j.consumer = my_consumer AND j.topic = u.topic AND j.key = u.key AND j.seq = u.first - 1
                                 OFFSET 0) l
            OFFSET 0) r
     WHERE i.ctid = r.tid AND i.seq = r.first - 1 RETURNING r.place
  )
  SELECT array_agg(d.place) INTO moved FROM done d;
  IF cardinality(moved) = cardinality(topics) THEN
    RETURN;
  END IF;
  is_moved := array_fill(false, ARRAY[cardinality(topics)]);
  FOREACH place IN ARRAY coalesce(moved, '{}') LOOP
    is_moved[place] := true;
  END LOOP;
  FOR run IN
    SELECT * FROM (SELECT n.*, n.first + n.count - 1 AS last, sum(n.count) OVER (ORDER BY n.place)::int AS past
                     FROM unnest(topics, keys, firsts, counts, starts) WITH ORDINALITY n (topic, key, first, count, start, place)) u
     WHERE NOT is_moved[u.place] ORDER BY u.topic COLLATE "C", u.key COLLATE "C"
  LOOP
    begins := false;
    LOOP
      SELECT i.seq, i.uuid INTO seq, last_uuid FROM :"schema".inbox i
       WHERE i.consumer = my_consumer AND i.topic = run.topic AND i.key = run.key FOR NO KEY UPDATE;
      EXIT WHEN FOUND;
      -- This waits for whoever begins the stream just now.
      INSERT INTO :"schema".inbox (consumer, topic, key, seq) VALUES (my_consumer, run.topic, run.key, run.start - 1)
          ON CONFLICT DO NOTHING;
      begins := FOUND;
    END LOOP;
    place := run.place;
    verdict := CASE
      WHEN run.first > seq + 1 THEN 'gap'
      WHEN seq BETWEEN run.first AND run.last AND uuids[run.past - (run.last - seq)::int] <> last_uuid THEN 'diverged'
      WHEN seq >= run.last THEN 'duplicate'
      ELSE 'accepted'
    END;
    IF verdict = 'accepted' THEN
      UPDATE :"schema".inbox i SET seq = run.last, uuid = uuids[run.past]
       WHERE i.consumer = my_consumer AND i.topic = run.topic AND i.key = run.key;
    ELSIF begins THEN
      -- Of which nothing was taken has not begun.
      DELETE FROM :"schema".inbox i WHERE i.consumer = my_consumer AND i.topic = run.topic AND i.key = run.key;
    END IF;
    IF verdict <> 'accepted' OR seq <> run.first - 1 THEN
      RETURN NEXT;
    END IF;
  END LOOP;
END
$$;

-- Begins a stream at a number. True where that was done; false where it has begun already and force is not given.
CREATE FUNCTION :"schema".inbox_start(
  my_consumer text, my_topic text, my_key text, start bigint, force boolean DEFAULT false
) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  INSERT INTO :"schema".inbox AS i (consumer, topic, key, seq) VALUES (my_consumer, my_topic, my_key, start - 1)
      ON CONFLICT (consumer, topic, key) DO UPDATE SET seq = excluded.seq, uuid = NULL WHERE force;
  RETURN FOUND;
END
$$;

-- How far a consumer is in a stream; no row where it has not begun.
CREATE FUNCTION :"schema".inbox_position(my_consumer text, my_topic text, my_key text) RETURNS TABLE (seq bigint, uuid uuid)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
  SELECT i.seq, i.uuid FROM :"schema".inbox i WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key
$$;

-- What runs with the owner's rights is nobody else's until it is granted.
REVOKE EXECUTE ON FUNCTION :"schema".inbox_accept, :"schema".inbox_accept_runs, :"schema".inbox_start,
  :"schema".inbox_position FROM PUBLIC;
