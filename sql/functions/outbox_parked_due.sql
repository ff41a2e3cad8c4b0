-- The next events of streams that are due for another try: at most max_events of each, and of all together no more bytes than a read of
-- outbox_read() has; one event there always is. What does not fit stays due. A stream that has more events than are returned ends with
-- a row that has more and no event; one without events is a row without either. unreadable: the event has so many bytes, more than
-- the schema's limit, and comes without its payload. The time is cut to whole milliseconds, as the library cuts it: an event that is
-- sent again has the same one. An event that is not due yet ends its stream's events.
CREATE FUNCTION :"schema".outbox_parked_due(my_dispatcher text, my_shard smallint, my_fence bigint, my_life text, max_streams integer, max_events integer)
RETURNS TABLE (attempts integer, event_id bigint, topic text, key text, seq bigint, uuid uuid, enqueued_ms bigint, payload text,
               hex text, headers text, tombstone text, unreadable bigint, more text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  most_bytes CONSTANT bigint := 8000000;
  limit_bytes bigint := :"schema".outbox_max_event_bytes();
  spent bigint := 0;
  size bigint;
  events integer;
  held boolean;
  p record;
  e record;
BEGIN
  IF NOT :"schema".outbox_owns(my_dispatcher, my_shard, my_fence, my_life) THEN
    RETURN;
  END IF;
  FOR p IN SELECT d.stream, d.topic, d.key, d.attempts, d.sent_seq FROM :"schema".outbox_parked d
            WHERE d.dispatcher = my_dispatcher AND d.shard = my_shard AND d.state = 'parked' AND d.next_attempt_at <= clock_timestamp()
            ORDER BY d.next_attempt_at LIMIT max_streams LOOP
    EXIT WHEN spent >= most_bytes;
    events := 0;
    held := false;
    more := NULL;
    SELECT INTO attempts, topic, key p.attempts, p.topic, p.key;
    FOR e IN SELECT q.id, q.seq, q.uuid, q.enqueued_at, q.payload, q.bytes, q.headers, q.tombstone, q.not_before FROM :"schema".outbox_parked_events q
              WHERE q.dispatcher = my_dispatcher AND q.stream = p.stream AND q.seq > p.sent_seq
               ORDER BY q.seq LIMIT max_events + 1 LOOP
      held := COALESCE(e.not_before > clock_timestamp(), false);
      IF events = max_events OR spent >= most_bytes OR held THEN
        more := 'more';
        EXIT;
      END IF;
      events := events + 1;
      SELECT INTO event_id, seq, uuid, enqueued_ms, tombstone, payload, hex, headers, unreadable
                  e.id, e.seq, e.uuid, floor(extract(epoch FROM e.enqueued_at) * 1000)::bigint, e.tombstone, NULL, NULL, NULL, NULL;
      -- First by what is stored, so that nothing huge is unpacked.
      size := :"schema".outbox_stored_bytes(e.payload, e.bytes, e.headers);
      unreadable := size;
      IF size <= limit_bytes THEN
        BEGIN
          SELECT INTO payload, headers, hex e.payload, e.headers, encode(e.bytes, 'hex');
          size := COALESCE(octet_length(e.bytes), octet_length(payload), 0)::bigint + COALESCE(octet_length(headers), 0);
          unreadable := CASE WHEN size > limit_bytes THEN size END;
        EXCEPTION WHEN program_limit_exceeded OR out_of_memory OR internal_error THEN
          -- The server cannot unpack it.
          unreadable := size;
        END;
      END IF;
      IF unreadable IS NULL THEN
        spent := spent + COALESCE(octet_length(hex), octet_length(payload), 0) + COALESCE(octet_length(headers), 0);
      ELSE
        SELECT INTO payload, headers, hex NULL, NULL, NULL;
      END IF;
      RETURN NEXT;
    END LOOP;
    -- A stream whose head is not due is not due.
    IF (events = 0 AND NOT held) OR (events > 0 AND more IS NOT NULL) THEN
      SELECT INTO event_id, seq, uuid, enqueued_ms, tombstone, payload, hex, headers, unreadable
                  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
      RETURN NEXT;
    END IF;
  END LOOP;
END
$$;
