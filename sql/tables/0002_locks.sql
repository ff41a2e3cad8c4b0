-- compatible-from: 1
-- The names of recent locks, so that people read keys and not numbers. A cache: written in the background, bounded, and
-- UNLOGGED, since after a crash the processes write it again.
CREATE UNLOGGED TABLE :"schema".lock_names (
  id bigint PRIMARY KEY,
  key text NOT NULL,
  seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX lock_names_seen_at ON :"schema".lock_names (seen_at);

-- Which keys are locked, which only observed. Followed by every process that is configured to.
CREATE TABLE :"schema".rollout (
  prefix text PRIMARY KEY,
  mode text NOT NULL CHECK (mode IN ('off', 'observe', 'on', 'percent')),
  percent integer CHECK (percent BETWEEN 0 AND 100),
  reason text NOT NULL DEFAULT '',
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  CHECK ((mode = 'percent') = (percent IS NOT NULL))
);

-- A row for each key, for servers without advisory locks: locked FOR UPDATE, and deleted when no session holds it.
CREATE TABLE :"schema".lock_rows (
  id bigint PRIMARY KEY
);

-- Where a trial has shown that locks exclude. A process that finds its server, its route and its strategy here does not try again. The
-- route is the address that the driver connects to: a pooler or a balancer on the way has no other name. The system identifier is the
-- server's: after a restore into another cluster nothing here counts.
CREATE TABLE :"schema".lock_trials (
  system bigint NOT NULL,
  route text NOT NULL,
  strategy text NOT NULL,
  -- Whether the connections went through a pooler that could be seen.
  pooled boolean NOT NULL,
  -- 2: the second was refused the key that the first one held. 1: there was no second, and the list of locks showed the key.
  connections smallint NOT NULL,
  -- Of the trial: a later release may try more.
  version integer NOT NULL,
  tried_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (system, route, strategy, pooled)
);
