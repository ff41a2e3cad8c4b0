-- Empties slots that every dispatcher has passed and the time has left, a minute after their last numbers were kept, or what is left
-- of the time where that is less. Waits for no lock for long: writers would queue behind it. Where there is no dispatcher, nothing
-- has been delivered. In the order of segments, and none before an older one: what is left of a stream must be its end.
CREATE FUNCTION :"schema".outbox_drop(min_age interval) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
DECLARE
  s :"schema".outbox_segments;
  age interval := COALESCE(min_age, :"schema".outbox_retention());
  passed xid8 := :"schema".outbox_passed();
  dropped integer := 0;
BEGIN
  -- One at a time: a second one, waiting for a slot's lock, would empty what has been written there since the first.
  IF passed IS NULL OR NOT pg_try_advisory_xact_lock(:"schema".lock_id('outbox-retain', 'Outbox:rotate')) THEN
    RETURN 0;
  END IF;
  PERFORM set_config('lock_timeout', '300ms', true);
  BEGIN
    -- A tick stands for a thousand events. What is left over goes with the next round.
    DELETE FROM :"schema".outbox_ticks t
     WHERE t.ctid = ANY(ARRAY(SELECT o.ctid FROM :"schema".outbox_ticks o WHERE o.newest < passed LIMIT 10000));
  EXCEPTION WHEN lock_not_available THEN
    RETURN 0;
  END;
  FOR s IN SELECT * FROM :"schema".outbox_segments g ORDER BY g.number LOOP
    EXIT WHEN NOT COALESCE(s.sealed_xid <= passed AND s.left_at <= clock_timestamp() - age
                           AND s.kept_at <= clock_timestamp() - least(age, interval '1 minute'), false);
    BEGIN
      EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', format('%I.outbox_events_' || s.slot, :'schema')::regclass);
      -- A dispatcher that registers now waits until this is over; one that has registered counts.
      LOCK TABLE :"schema".outbox_dispatchers IN SHARE MODE;
    EXCEPTION WHEN lock_not_available THEN
      EXIT;
    END;
    -- A new dispatcher can have begun to read it meanwhile, or retains it for longer.
    passed := :"schema".outbox_passed();
    age := COALESCE(min_age, :"schema".outbox_retention());
    EXIT WHEN NOT COALESCE(s.sealed_xid <= passed AND s.left_at <= clock_timestamp() - age, false);
    -- For a replay of these events: see outbox_emptied().
    UPDATE :"schema".outbox_home h SET emptied_id = s.last_id WHERE h.emptied_id < s.last_id;
    EXECUTE format('TRUNCATE %s', format('%I.outbox_events_' || s.slot, :'schema')::regclass);
    DELETE FROM :"schema".outbox_segments g WHERE g.slot = s.slot;
    dropped := dropped + 1;
  END LOOP;
  RETURN dropped;
END
$$;
