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

-- Takes an event if it is the next one: first, tombstone, duplicate, diverged, or gap:<the number that is expected>. start counts only
-- for a stream without a row. Whoever comes while another transaction is at the same stream waits for its end, before anything is said
-- that depends on it; above READ COMMITTED it fails with 40001 instead of answering from an old snapshot.
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
      -- Also where the event is not the first one: this waits for whoever begins the stream just now.
      INSERT INTO :"schema".inbox (consumer, topic, key, seq, uuid)
      VALUES (my_consumer, my_topic, my_key, CASE WHEN my_seq = start THEN my_seq ELSE start - 1 END,
              CASE WHEN my_seq = start THEN my_uuid END)
          ON CONFLICT DO NOTHING;
      IF FOUND AND my_seq = start THEN
        RETURN taken;
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
REVOKE EXECUTE ON FUNCTION :"schema".inbox_accept, :"schema".inbox_start, :"schema".inbox_position FROM PUBLIC;
