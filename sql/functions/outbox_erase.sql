-- Takes the payloads of a stream away, wherever they are. Numbers and order stay; what is not delivered yet goes out as a tombstone.
CREATE FUNCTION :"schema".outbox_erase(my_topic text, my_key text, my_reason text) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  mine uuid := :"schema".outbox_stream(my_topic, my_key);
  erased_now integer;
  copies integer;
BEGIN
  -- In the order of outbox_halt(), which has the events when it comes to the copies.
  LOCK TABLE :"schema".outbox_events IN ROW EXCLUSIVE MODE;
  LOCK TABLE :"schema".outbox_parked_events IN SHARE ROW EXCLUSIVE MODE;
  -- A redrive takes a dead letter away and enqueues it again: it is over, and its event is seen below, or it begins afterwards.
  LOCK TABLE :"schema".outbox_dead IN SHARE ROW EXCLUSIVE MODE;
  UPDATE :"schema".outbox_events e SET payload = NULL, bytes = NULL, headers = NULL, erased = true
   WHERE e.stream = mine AND NOT e.erased;
  GET DIAGNOSTICS erased_now = ROW_COUNT;
  UPDATE :"schema".outbox_parked_events e SET payload = NULL, bytes = NULL, headers = NULL, tombstone = COALESCE(e.tombstone, 'erased')
   WHERE e.stream = mine AND (e.payload IS NOT NULL OR e.bytes IS NOT NULL OR e.headers IS NOT NULL);
  GET DIAGNOSTICS copies = ROW_COUNT;
  UPDATE :"schema".outbox_dead e SET payload = NULL, bytes = NULL, headers = NULL WHERE e.stream = mine;
  INSERT INTO :"schema".outbox_audit (verb, topic, key, reason) VALUES ('erase', my_topic, my_key, my_reason);
  RETURN greatest(erased_now, copies);
END
$$;
