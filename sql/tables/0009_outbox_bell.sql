-- compatible-from: 1
-- Dispatchers that wait for the bell, and until when. No writer rings while there is none. UNLOGGED: a crash ends their connections as well,
-- and each registers again when it listens again.
CREATE UNLOGGED TABLE :"schema".outbox_listeners (
  listener uuid PRIMARY KEY,
  until timestamptz NOT NULL
);
