-- Notes from which transaction on no session writes to the old slot: a session that read the old slot had its transaction id before that,
-- and so before this one got its own.
CREATE FUNCTION :"schema".outbox_seal() RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  current_number bigint := (SELECT s.number FROM :"schema".outbox_segments s WHERE s.slot = (SELECT last_value FROM :"schema".outbox_slot));
  sealed integer;
BEGIN
  UPDATE :"schema".outbox_segments s SET left_at = clock_timestamp(), sealed_xid = pg_current_xact_id()
   WHERE s.number < current_number AND s.sealed_xid IS NULL;
  GET DIAGNOSTICS sealed = ROW_COUNT;
  RETURN sealed;
END
$$;
