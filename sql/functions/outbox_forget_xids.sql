-- The last step of a rebase, when every dispatcher has been through it: events of another server's transactions would otherwise turn up
-- when this one's ids have come so far. Returns the numbers of segments that are torn: emptied while the dump was made, after its
-- snapshot and before it had locked them, so that it has neither their events nor the last numbers of their streams.
CREATE FUNCTION :"schema".outbox_forget_xids(this_system text) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
BEGIN
  PERFORM :"schema".outbox_halt();
  UPDATE :"schema".outbox_events e SET xid = '1'::xid8 WHERE e.xid <> '1'::xid8;
  UPDATE :"schema".outbox_segments s SET sealed_xid = pg_current_xact_id() WHERE s.sealed_xid IS NOT NULL;
  DELETE FROM :"schema".outbox_ticks;
  -- Numbers can begin at 1 again here.
  UPDATE :"schema".outbox_parked p SET sent_seq = 0 WHERE p.sent_seq > 0;
  INSERT INTO :"schema".outbox_home (system) VALUES (this_system) ON CONFLICT (one) DO UPDATE SET system = EXCLUDED.system;
  -- Where segments changed while the dump was made, it knows the new one by the sequence alone.
  INSERT INTO :"schema".outbox_segments (slot, number, opened_at)
  SELECT o.last_value, (SELECT COALESCE(max(s.number), 0) + 1 FROM :"schema".outbox_segments s), clock_timestamp()
    FROM :"schema".outbox_slot o ON CONFLICT DO NOTHING;
  -- A segment is not left before it has events.
  RETURN ARRAY(SELECT s.number FROM :"schema".outbox_segments s
                WHERE s.left_at IS NOT NULL AND s.kept_at IS NULL
                  AND NOT EXISTS (SELECT FROM :"schema".outbox_events e WHERE e.slot = s.slot) ORDER BY s.number);
END
$$;
