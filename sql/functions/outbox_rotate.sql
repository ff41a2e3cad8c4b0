-- From here on the slot that was made known is written to. This does not wait for a commit, and is not undone by a rollback.
CREATE FUNCTION :"schema".outbox_rotate() RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  here :"schema".outbox_segments;
  there :"schema".outbox_segments;
BEGIN
  IF NOT pg_try_advisory_xact_lock(:"schema".lock_id('outbox-retain', 'Outbox:rotate')) THEN
    RETURN false;
  END IF;
  SELECT * INTO here FROM :"schema".outbox_segments s WHERE s.slot = (SELECT last_value FROM :"schema".outbox_slot);
  SELECT * INTO there FROM :"schema".outbox_segments s WHERE s.number = here.number + 1;
  IF there.slot IS NULL THEN
    RETURN false;
  END IF;
  PERFORM setval(format('%I.outbox_slot', :'schema')::regclass, there.slot);
  UPDATE :"schema".outbox_segments s SET opened_at = clock_timestamp() WHERE s.slot = there.slot;
  RETURN true;
END
$$;
