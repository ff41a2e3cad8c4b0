-- From here on nobody enqueues, delivers, operates or looks after segments. Everybody takes locks in this order, as far as they take
-- them: registering has home, then dispatchers; removing one has dispatchers, then the rest; moving cursors has these before what is
-- put aside, of all shards of a message; erasing has events, then copies.
CREATE FUNCTION :"schema".outbox_halt() RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(:"schema".lock_id('outbox-retain', 'Outbox:rotate'));
  -- The slots, and not the table above them, which only some of those that write go through, and before their slot.
  LOCK TABLE :"schema".outbox_home, :"schema".outbox_dispatchers,
             :"schema".outbox_events_0, :"schema".outbox_events_1, :"schema".outbox_events_2, :"schema".outbox_events_3,
             :"schema".outbox_events_4, :"schema".outbox_events_5, :"schema".outbox_events_6, :"schema".outbox_events_7,
             :"schema".outbox_cursors, :"schema".outbox_parked, :"schema".outbox_parked_events IN EXCLUSIVE MODE;
END
$$;
