-- compatible-from: 1
-- Where a trial has shown that locks exclude: of two connections, the second was refused the key of the first. A process that finds its
-- server, its route and its strategy here does not try again. The route is what the driver was told to connect to: a pooler or a
-- balancer on the way has no other name. `pooled`: whether the connections went through one that could be seen. The system identifier is
-- the server's: after a restore into another cluster nothing here counts.
CREATE TABLE :"schema".lock_trials (
  system bigint NOT NULL,
  route text NOT NULL,
  strategy text NOT NULL,
  pooled boolean NOT NULL,
  -- Of the trial: a later release may try more.
  version integer NOT NULL,
  tried_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (system, route, strategy, pooled)
);
