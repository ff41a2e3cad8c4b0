-- Appends many events, in their order. locked: the caller has locked their streams or groups. known: of each event, its stream's last
-- number, where the caller read it under the lock before its snapshot. not_befores: of each event, the time before which it is not sent; null: none
-- has one (docs/decisions/0063-held-events.md).
CREATE FUNCTION :"schema".outbox_append_many_at(
  topics text[], keys text[], payloads text[], bytes bytea[], headers text[], not_befores timestamptz[], locked boolean DEFAULT false,
  known bigint[] DEFAULT NULL
) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  me xid8 := pg_current_xact_id();
  all_streams uuid[] := ARRAY(SELECT :"schema".outbox_stream(g.topic, g.key) FROM unnest(topics, keys) WITH ORDINALITY AS g(topic, key, n) ORDER BY g.n);
  streams uuid[];
  lasts bigint[];
  my_slot smallint;
  first_id bigint;
  last_id bigint;
  added integer;
BEGIN
  PERFORM :"schema".epoch_mark_now();
  PERFORM :"schema".outbox_check_names(g.topic, g.key) FROM (SELECT DISTINCT * FROM unnest(topics, keys)) AS g(topic, key);
  PERFORM :"schema".outbox_check_headers(g.topic, g.key, g.headers::json)
    FROM unnest(topics, keys, headers) AS g(topic, key, headers) WHERE NOT :"schema".outbox_plain_headers(g.headers);
  PERFORM :"schema".outbox_refuse_payload(g.topic, g.key, octet_length(g.payload), octet_length(g.bytes), octet_length(g.headers))
     FROM unnest(topics, keys, payloads, bytes, headers) AS g(topic, key, payload, bytes, headers)
    WHERE (g.payload IS NULL) = (g.bytes IS NULL)
       OR COALESCE(octet_length(g.bytes), octet_length(g.payload))::bigint + COALESCE(octet_length(g.headers), 0)
          > :"schema".outbox_max_event_bytes();
  IF not_befores IS NOT NULL THEN
    PERFORM :"schema".outbox_check_time(g.topic, g.key, g.not_before) FROM unnest(topics, keys, not_befores) AS g(topic, key, not_before);
  END IF;
  streams := ARRAY(SELECT DISTINCT s FROM unnest(all_streams) AS s);
  IF NOT locked THEN
    PERFORM :"schema".outbox_lock_streams(streams);
  END IF;
  SELECT s.last_value INTO my_slot FROM :"schema".outbox_slot s;
  IF known IS NULL THEN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
      PERFORM :"schema".outbox_refuse_isolation();
    END IF;
    lasts := :"schema".outbox_last(streams);
  ELSE
    lasts := ARRAY(SELECT (SELECT min(k.last) FROM unnest(all_streams, known) AS k(stream, last) WHERE k.stream = s.stream)
                     FROM unnest(streams) WITH ORDINALITY AS s(stream, n) ORDER BY s.n);
  END IF;
  WITH appended AS (
    INSERT INTO :"schema".outbox_events (slot, xid, bucket, bucket_group, stream, seq, uuid, enqueued_at, topic, key, payload, bytes, headers, not_before)
    SELECT my_slot, me, g.bucket, :"schema".outbox_group(g.bucket), g.stream,
           l.last + row_number() OVER (PARTITION BY g.stream ORDER BY g.n), gen_random_uuid(), clock_timestamp(),
           g.topic, g.key, g.payload::json, g.bytes, g.headers::json, g.not_before
      FROM (SELECT u.*, :"schema".outbox_bucket(u.stream) AS bucket
              FROM unnest(all_streams, topics, keys, payloads, bytes, headers, not_befores) WITH ORDINALITY
                     AS u(stream, topic, key, payload, bytes, headers, not_before, n) OFFSET 0) AS g
      JOIN unnest(streams, lasts) AS l(stream, last) ON l.stream = g.stream
     ORDER BY g.n
    RETURNING id)
  SELECT min(id), max(id), count(*) INTO first_id, last_id, added FROM appended;
  IF last_id / 1000 > (first_id - 1) / 1000 THEN
    PERFORM :"schema".outbox_tick(last_id);
  END IF;
  RETURN added;
END
$$;
