-- Registers a dispatcher for the bell for this time; null: removes it. Old registrations are deleted.
CREATE FUNCTION :"schema".outbox_listen(me uuid, for_ms integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  -- A crash forgets it in any case.
  PERFORM set_config('synchronous_commit', 'off', true);
  IF for_ms IS NULL THEN
    DELETE FROM :"schema".outbox_listeners l WHERE l.listener = me;
  ELSE
    INSERT INTO :"schema".outbox_listeners AS l (listener, until)
    VALUES (me, clock_timestamp() + make_interval(secs => for_ms / 1000.0))
        ON CONFLICT (listener) DO UPDATE SET until = EXCLUDED.until;
    DELETE FROM :"schema".outbox_listeners l WHERE l.until < clock_timestamp() - interval '1 hour';
  END IF;
END
$$;
