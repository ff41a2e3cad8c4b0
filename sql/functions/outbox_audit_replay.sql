-- Writes down that an operator replays, before the first event is sent. Without a stream: everything of a topic, or everything.
CREATE FUNCTION :"schema".outbox_audit_replay(my_topic text, my_key text, my_seq bigint, my_reason text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  INSERT INTO :"schema".outbox_audit (verb, topic, key, seq, reason) VALUES ('replay', my_topic, my_key, my_seq, my_reason);
END
$$;
