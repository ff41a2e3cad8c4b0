-- compatible-from: 1
-- What a failover needs to know. docs/decisions/0044-leases-over-a-failover.md and 0045-generation-of-events.md have the protocol.

-- How long a lease lasts without a heartbeat: after a promotion its end is counted again, by the new server's clock. Null: granted before
-- this version, at most a day.
ALTER TABLE :"schema".leases ADD COLUMN ttl_ms integer;

-- Two settings of the schema, and the end of a period that a crash must not end. Until then no lease is granted that was not held:
-- its row may have been lost.
ALTER TABLE :"schema".epoch
  ADD COLUMN max_ttl_ms integer NOT NULL DEFAULT 60000,
  -- The longest ttl that is granted while max_ttl_ms, which is larger, has not reached every standby: one that is promoted without either the
  -- lease or the larger number would wait too short. Null where max_ttl_ms is granted.
  ADD COLUMN granted_ttl_ms integer,
  -- An operator's statement: only a standby is promoted that has every acknowledged commit.
  ADD COLUMN synchronous_failover boolean NOT NULL DEFAULT false,
  ADD COLUMN began_at timestamptz,
  ADD COLUMN grants_from timestamptz,
  -- What epoch_mark was when the last epoch began.
  ADD COLUMN mark bigint;

-- The server epochs so far, the last thousand and all that began a generation.
CREATE TABLE :"schema".epochs (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  history uuid NOT NULL,
  generation bigint NOT NULL,
  -- first: the schema was new. restart: a crash, or a storage snapshot on the same timeline. timeline: a promotion, or a restore to a
  -- point in time. copy: another server or database.
  kind text NOT NULL CHECK (kind IN ('first', 'restart', 'timeline', 'copy')),
  timeline bigint NOT NULL,
  system bigint NOT NULL,
  database oid NOT NULL,
  address text,
  began_at timestamptz NOT NULL,
  -- Of the old epoch, by the old server's clock: null where it is not known.
  last_known_at timestamptz,
  -- Every event of this epoch and of later ones has a larger id than this; events of earlier ones do not.
  after_id bigint NOT NULL,
  began_lsn pg_lsn NOT NULL
);

-- The timeline on which events are enqueued, and which sequence of ids it counts in (a restored dump has another one); and the first id that
-- was given out there. See epoch_mark_now().
CREATE SEQUENCE :"schema".epoch_mark;
CREATE SEQUENCE :"schema".epoch_first_id;

-- The generation of the last event that was accepted; null where none was, or where its message did not say. Within a stream generations
-- only grow with the numbers.
ALTER TABLE :"schema".inbox ADD COLUMN generation bigint;
