-- Goes behind outbox_read() in the same message, and does what outbox_flush() does if that read found events that might not be on disk yet: one
-- round trip less before an event is sent. Gives the history in which everything was brought to disk; null where nothing was to be
-- done, and where a standby is waited for: there the caller flushes by itself, and hears warnings.
CREATE FUNCTION :"schema".outbox_flush_read(OUT flushed text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
  IF current_setting('lockstep.outbox_unflushed', true) = 'yes' THEN
    flushed := (SELECT f.life FROM :"schema".outbox_flush() AS f WHERE f.place IS NULL);
  END IF;
END
$$;
