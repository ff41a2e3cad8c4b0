-- Makes the next slot known, if the current segment is old enough and the next slot is free. It is written to only after this is
-- committed: readers look into all slots that are known. A null age is that of the registered dispatchers. A
-- segment has a sixth of it: there are slots for two more.
CREATE FUNCTION :"schema".outbox_prepare_segment(min_age interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  current_slot smallint := (SELECT last_value FROM :"schema".outbox_slot);
BEGIN
  INSERT INTO :"schema".outbox_segments (slot, number, opened_at)
  SELECT (s.slot + 1) % 8, s.number + 1, clock_timestamp()
    FROM :"schema".outbox_segments s
   WHERE s.slot = current_slot AND s.opened_at <= clock_timestamp() - COALESCE(min_age, :"schema".outbox_retention() / 6)
     AND EXISTS (SELECT FROM :"schema".outbox_events e WHERE e.slot = current_slot)
      ON CONFLICT DO NOTHING;
  RETURN FOUND;
END
$$;
