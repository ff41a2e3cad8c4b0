-- compatible-from: 1
-- Leases: exclusive for longer than a transaction. One row for each name and slot; a name with one permit has slot 0 alone.
-- The row stays when the lease is released (token is null then), so that taking it again is an update in place.
CREATE TABLE :"schema".leases (
  name text NOT NULL,
  slot integer NOT NULL,
  permits integer NOT NULL CHECK (permits > slot),
  -- Changes with every holder, never with a heartbeat. It is part of a unique index, so that changing it waits for a session that has
  -- the row FOR KEY SHARE: the transactions of the holder.
  fence bigint NOT NULL,
  token uuid,
  holder text NOT NULL,
  metadata jsonb,
  acquired_at timestamptz NOT NULL,
  expires_at timestamptz NOT NULL,
  -- Whether its end goes into the history.
  remembered boolean NOT NULL DEFAULT true,
  PRIMARY KEY (name, slot),
  UNIQUE (name, fence)
) WITH (fillfactor = 80);

-- The lower 40 bits of fences; above them is the generation (0001_server_epoch.sql has the layout). They only grow, over releases,
-- clean-up, crashes and promotions.
CREATE SEQUENCE :"schema".fences MAXVALUE 1099511627775;

-- Who waits, in order of arrival. A row that is not kept alive is passed over.
CREATE TABLE :"schema".lease_waiters (
  place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL,
  token uuid NOT NULL UNIQUE,
  holder text NOT NULL,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL
);
CREATE INDEX lease_waiters_name ON :"schema".lease_waiters (name, place);

-- How leases ended. Bounded: old rows are taken away in the background.
CREATE TABLE :"schema".lease_history (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL,
  slot integer NOT NULL,
  fence bigint NOT NULL,
  holder text NOT NULL,
  metadata jsonb,
  acquired_at timestamptz NOT NULL,
  ended_at timestamptz NOT NULL,
  ending text NOT NULL CHECK (ending IN ('released', 'expired', 'forced')),
  ended_by text,
  reason text
);
CREATE INDEX lease_history_name ON :"schema".lease_history (name, id);
