-- compatible-from: 1
-- Events that are not sent before a time: docs/decisions/0063-held-events.md has the protocol. Null: at once.
ALTER TABLE :"schema".outbox_events ADD COLUMN not_before timestamptz;
ALTER TABLE :"schema".outbox_parked_events ADD COLUMN not_before timestamptz;
-- The time of the event at the head, also when it has passed; next_attempt_at is never earlier.
ALTER TABLE :"schema".outbox_parked ADD COLUMN held_until timestamptz;
-- A read asks for the next due time of its shard. There can be many streams that are held for long.
CREATE INDEX outbox_parked_due ON :"schema".outbox_parked (dispatcher, shard, next_attempt_at) WHERE state = 'parked';
