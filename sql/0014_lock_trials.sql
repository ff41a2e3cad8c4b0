-- compatible-from: 1
-- Where a trial has shown that locks exclude. A process that finds its server, its route and its strategy here does not try again. The
-- route is what the driver was told to connect to: a pooler or a balancer on the way has no other name. The system identifier is the
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
