-- Until this transaction ends, no session enqueues, delivers, operates or maintains segments. All functions take their locks in this order:
-- registering: outbox_home, then dispatchers; removing a dispatcher: dispatchers, then the rest; moving cursors: cursors, then parked
-- events, of all shards of a message; erasing: events, then copies.
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
