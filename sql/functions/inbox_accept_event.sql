-- Takes an event if it is the next one: first, tombstone, duplicate, diverged, outdated, or gap:<the number that is expected>. diverged: its
-- number was given to another event, which was accepted: it has another id, or is of a later generation than the last one. outdated: it
-- would be the next one, and is of an earlier generation than the last. A gap writes
-- nothing, also where the caller catches it and commits. start counts only for a stream without a row. A call that comes while another transaction is at the same stream waits for its end, before anything is said that
-- depends on it; above READ COMMITTED it fails with 40001 instead of answering from an old snapshot.
-- enable_seqscan: a scan of a small table would, at SERIALIZABLE, be a read of all streams.
CREATE FUNCTION :"schema".inbox_accept_event(
  my_consumer text, my_topic text, my_key text, my_seq bigint, my_uuid uuid, tombstone boolean, start bigint, my_generation bigint
) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  taken text := CASE WHEN tombstone THEN 'tombstone' ELSE 'first' END;
  last_seq bigint;
  last_uuid uuid;
  last_generation bigint;
BEGIN
  IF my_uuid IS NULL OR (my_seq >= 1 AND start >= 1) IS NOT TRUE THEN
    RAISE EXCEPTION 'an event needs a uuid, a number from 1 on and a start from 1 on' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  LOOP
    UPDATE :"schema".inbox i SET seq = my_seq, uuid = my_uuid, generation = COALESCE(my_generation, i.generation)
     WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key AND i.seq = my_seq - 1
       AND (i.generation > my_generation) IS NOT TRUE;
    IF FOUND THEN
      RETURN taken;
    END IF;
    SELECT i.seq, i.uuid, i.generation INTO last_seq, last_uuid, last_generation FROM :"schema".inbox i
     WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key;
    IF NOT FOUND THEN
      -- Also where the event does not begin the stream: this waits for a transaction that begins it just now.
      INSERT INTO :"schema".inbox (consumer, topic, key, seq, uuid, generation)
      VALUES (my_consumer, my_topic, my_key, CASE WHEN my_seq = start THEN my_seq ELSE start - 1 END,
              CASE WHEN my_seq = start THEN my_uuid END, CASE WHEN my_seq = start THEN my_generation END)
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
      RETURN CASE WHEN (my_seq = last_seq AND last_uuid <> my_uuid) OR my_generation > last_generation THEN 'diverged' ELSE 'duplicate' END;
    ELSE
      -- The one before may be at work in another transaction.
      SELECT i.seq, i.generation INTO last_seq, last_generation FROM :"schema".inbox i
       WHERE i.consumer = my_consumer AND i.topic = my_topic AND i.key = my_key FOR NO KEY UPDATE;
      IF FOUND AND my_seq > last_seq + 1 THEN
        RETURN 'gap:' || (last_seq + 1);
      ELSIF FOUND AND my_seq = last_seq + 1 AND my_generation < last_generation THEN
        RETURN 'outdated';
      END IF;
    END IF;
  END LOOP;
END
$$;
