-- Removes a dispatcher: its cursors, and its parked events. Segments no longer wait for it.
CREATE FUNCTION :"schema".outbox_remove(my_dispatcher text, my_reason text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  PERFORM FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher FOR UPDATE;
  IF NOT FOUND THEN
    RETURN 'no dispatcher';
  END IF;
  IF EXISTS (SELECT FROM :"schema".leases l
              WHERE starts_with(l.name, 'Outbox:' || my_dispatcher || ':') AND l.token IS NOT NULL AND l.expires_at > clock_timestamp()) THEN
    RETURN 'running';
  END IF;
  -- Waits for cursors that are being moved: they would not be seen below, and be left behind, with the events that are parked with them. Not for
  -- long: a dispatcher that moves one waits behind it.
  PERFORM set_config('lock_timeout', '2s', true);
  BEGIN
    LOCK TABLE :"schema".outbox_cursors IN SHARE ROW EXCLUSIVE MODE;
  EXCEPTION WHEN lock_not_available THEN
    RETURN 'running';
  END;
  PERFORM set_config('lock_timeout', '0', true);
  DELETE FROM :"schema".outbox_cursors o WHERE o.dispatcher = my_dispatcher;
  DELETE FROM :"schema".outbox_parked o WHERE o.dispatcher = my_dispatcher;
  DELETE FROM :"schema".outbox_parked_events o WHERE o.dispatcher = my_dispatcher;
  DELETE FROM :"schema".outbox_dispatchers o WHERE o.name = my_dispatcher;
  INSERT INTO :"schema".outbox_audit (verb, dispatcher, reason) VALUES ('remove', my_dispatcher, my_reason);
  RETURN 'done';
END
$$;
