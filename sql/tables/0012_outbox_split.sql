-- compatible-from: 1
-- Splitting the shards of a dispatcher: docs/decisions/0058-splitting-shards.md has the protocol. Until paused_until owners release their shards, and
-- no process takes one. split_from is the number of shards before the last split; owners from before it have smaller fences than split_fence.
ALTER TABLE :"schema".outbox_dispatchers ADD COLUMN paused_until timestamptz;
ALTER TABLE :"schema".outbox_dispatchers ADD COLUMN split_from smallint;
ALTER TABLE :"schema".outbox_dispatchers ADD COLUMN split_fence bigint;
