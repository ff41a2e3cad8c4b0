-- Raises the error for an event that has no payload, two payloads, or too large a payload.
CREATE FUNCTION :"schema".outbox_refuse_payload(topic text, key text, json_bytes integer, bytes_bytes integer, header_bytes integer) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  size bigint := COALESCE(json_bytes, bytes_bytes)::bigint + COALESCE(header_bytes, 0);
BEGIN
  IF json_bytes IS NULL AND bytes_bytes IS NULL THEN
    RAISE EXCEPTION 'the payload of an event of %/% is SQL NULL', topic, key
      USING ERRCODE = 'null_value_not_allowed', HINT = 'Enqueue JSON null as ''null''::json.';
  ELSIF json_bytes IS NOT NULL AND bytes_bytes IS NOT NULL THEN
    RAISE EXCEPTION 'an event of %/% has two payloads, JSON and bytes', topic, key
      USING ERRCODE = 'invalid_parameter_value', HINT = 'Pass one of them, and NULL for the other.';
  ELSIF size > :"schema".outbox_max_event_bytes() THEN
    RAISE EXCEPTION 'an event of %/% has % bytes, more than the limit of % bytes', topic, key, size, :"schema".outbox_max_event_bytes()
      USING ERRCODE = 'program_limit_exceeded',
            HINT = 'Store what is large elsewhere and send a reference, or raise the limit: npx pg-lockstep migrate --max-event-bytes N.';
  END IF;
END
$$;
