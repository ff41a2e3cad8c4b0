-- compatible-from: 1
-- The outbox: strict order per stream (topic and key), append-only. No row of it is updated or deleted for an event's sake.

-- Events, in eight slots that are used in turn: a segment is what one slot holds from its opening until it is emptied as a whole.
CREATE TABLE :"schema".outbox_events (
  slot smallint NOT NULL,
  -- Given out under the stream's lock: within a stream in the order of its numbers.
  id bigint NOT NULL,
  xid xid8 NOT NULL,
  -- Of 1,024, by the hash of the stream: the finest division into shards. See outbox_bucket().
  bucket smallint NOT NULL,
  -- Of 64, each of 16 buckets: how events are found, and what a transaction with very many streams locks. See outbox_group().
  bucket_group smallint NOT NULL,
  stream uuid NOT NULL,
  seq bigint NOT NULL,
  uuid uuid NOT NULL,
  enqueued_at timestamptz NOT NULL,
  topic text NOT NULL,
  key text NOT NULL,
  -- One of the two; neither where the payload was erased.
  payload json,
  bytes bytea,
  headers json,
  erased boolean NOT NULL DEFAULT false
) PARTITION BY LIST (slot);

CREATE SEQUENCE :"schema".outbox_ids;

DO $do$
BEGIN
  EXECUTE format('ALTER TABLE %I.outbox_events ALTER COLUMN id SET DEFAULT nextval(%L)',
                 :'schema', format('%I.outbox_ids', :'schema'));
  FOR n IN 0 .. 7 LOOP
    EXECUTE format('CREATE TABLE %I.%I PARTITION OF %I.outbox_events FOR VALUES IN (%s)',
                   :'schema', 'outbox_events_' || n, :'schema', n);
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I.%I (stream, seq)',
                   'outbox_events_' || n || '_stream', :'schema', 'outbox_events_' || n);
    EXECUTE format('CREATE INDEX %I ON %I.%I (bucket_group, xid, id)',
                   'outbox_events_' || n || '_xid', :'schema', 'outbox_events_' || n);
    -- For those who replicate all tables: without it PostgreSQL refuses to update a row there. (It is logged only where its columns change.)
    EXECUTE format('ALTER TABLE %I.%I REPLICA IDENTITY USING INDEX %I',
                   :'schema', 'outbox_events_' || n, 'outbox_events_' || n || '_stream');
    -- For replay from a position: ids lie in the table nearly in their order, so that this costs next to nothing.
    EXECUTE format('CREATE INDEX %I ON %I.%I USING brin (id) WITH (pages_per_range = 16, autosummarize = on)',
                   'outbox_events_' || n || '_id', :'schema', 'outbox_events_' || n);
  END LOOP;
END
$do$;

-- Which slot is written to: a sequence, because its value is read as it is now also by a transaction with an old snapshot. Were it
-- read from a snapshot, a transaction that began before a change of slots could write to a slot long after it was left.
CREATE SEQUENCE :"schema".outbox_slot AS smallint MINVALUE 0 MAXVALUE 7 START 0 CYCLE;

-- The slots in use. From sealed_xid on no transaction writes to a slot that was left.
CREATE TABLE :"schema".outbox_segments (
  slot smallint PRIMARY KEY,
  number bigint NOT NULL,
  opened_at timestamptz NOT NULL,
  left_at timestamptz,
  sealed_xid xid8,
  -- How far the last numbers of its streams are written down, in descending order of streams: see outbox_keep().
  kept_stream uuid,
  -- The largest id of its events, as far as they were looked at.
  last_id bigint,
  -- Since when the last numbers of its streams are in outbox_quiet.
  kept_at timestamptz
);
INSERT INTO :"schema".outbox_segments VALUES (0, 1, clock_timestamp());

-- The last numbers of streams whose events are all gone.
CREATE TABLE :"schema".outbox_quiet (
  stream uuid PRIMARY KEY,
  topic text NOT NULL,
  key text NOT NULL,
  seq bigint NOT NULL
);

-- Snapshots on the way, so that a backlog can be read in pieces. Gone after a crash, and must be: ids of transactions that were not
-- on disk by then are assigned again.
CREATE UNLOGGED TABLE :"schema".outbox_ticks (
  newest xid8 NOT NULL,
  running integer NOT NULL,
  id bigint NOT NULL,
  snapshot pg_snapshot NOT NULL,
  -- How far the log was written when the snapshot was taken: what is visible in it has its commit before that.
  written pg_lsn
);
CREATE INDEX outbox_ticks_order ON :"schema".outbox_ticks (newest, running DESC);

-- The server whose transactions the events name. A restored dump brings it along.
CREATE TABLE :"schema".outbox_home (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  system text NOT NULL,
  -- The largest id of an event that retention has removed.
  emptied_id bigint NOT NULL DEFAULT 0
);
INSERT INTO :"schema".outbox_home (system) SELECT s.system_identifier::text FROM pg_control_system() AS s;

-- Who dispatches, into how many shards, on which server its cursors are good, and how long it wants delivered events to stay. Null: for
-- ever.
CREATE TABLE :"schema".outbox_dispatchers (
  name text PRIMARY KEY,
  shards smallint NOT NULL,
  system text NOT NULL,
  database text NOT NULL,
  timeline bigint NOT NULL,
  retain_ms bigint DEFAULT 604800000,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- How far each shard is. Appended to, so that reading the last one costs the same however many there are: a row that is updated
-- has all its versions behind it while a session holds an old snapshot. Old versions are taken away in passing.
-- What is visible in `prev` is delivered; of what is visible in `next` as well, everything up to after_id, or all of it.
CREATE TABLE :"schema".outbox_cursors (
  dispatcher text NOT NULL,
  shard smallint NOT NULL,
  version bigint NOT NULL,
  fence bigint NOT NULL,
  prev pg_snapshot NOT NULL,
  next pg_snapshot NOT NULL,
  after_id bigint NOT NULL,
  done boolean NOT NULL,
  -- How far ids had been given out when `next` was read, or later: whatever has a larger one is not delivered.
  seen_id bigint NOT NULL,
  moved_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (dispatcher, shard, version)
);

-- Streams that wait: for another try (parked), for an operator (blocked, paused).
CREATE TABLE :"schema".outbox_parked (
  dispatcher text NOT NULL,
  stream uuid NOT NULL,
  shard smallint NOT NULL,
  topic text NOT NULL,
  key text NOT NULL,
  state text NOT NULL CHECK (state IN ('parked', 'blocked', 'paused')),
  attempts integer NOT NULL DEFAULT 0,
  reason text,
  since timestamptz NOT NULL DEFAULT clock_timestamp(),
  next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- No event that is parked has this number or a smaller one. While a session holds an old snapshot, rows that were deleted stay in
  -- the index: a search from the stream's beginning would pass all of them, each time.
  sent_seq bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (dispatcher, stream)
);
CREATE INDEX outbox_parked_shard ON :"schema".outbox_parked (dispatcher, shard);

-- Their events, copied: a segment can go before they do.
CREATE TABLE :"schema".outbox_parked_events (
  dispatcher text NOT NULL,
  stream uuid NOT NULL,
  seq bigint NOT NULL,
  id bigint NOT NULL,
  uuid uuid NOT NULL,
  enqueued_at timestamptz NOT NULL,
  topic text NOT NULL,
  key text NOT NULL,
  payload json,
  bytes bytea,
  headers json,
  -- Delivered as a tombstone: skipped, dead, or erased.
  tombstone text,
  PRIMARY KEY (dispatcher, stream, seq)
);

-- Events that were given up, with why.
CREATE TABLE :"schema".outbox_dead (
  dispatcher text NOT NULL,
  stream uuid NOT NULL,
  seq bigint NOT NULL,
  id bigint NOT NULL,
  uuid uuid NOT NULL,
  enqueued_at timestamptz NOT NULL,
  topic text NOT NULL,
  key text NOT NULL,
  payload json,
  bytes bytea,
  headers json,
  reason text,
  died_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (dispatcher, stream, seq)
);

-- What operators did, who they said they were, from where they were connected, and why. What a dispatcher gave up by itself has no by_name.
CREATE TABLE :"schema".outbox_audit (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  by_role text NOT NULL DEFAULT session_user,
  -- As the caller said, for one transaction: several people share one role. Undefined and reset are the empty text.
  by_name text DEFAULT nullif(current_setting('lockstep.by', true), ''),
  by_address inet DEFAULT inet_client_addr(),
  verb text NOT NULL,
  dispatcher text,
  topic text,
  key text,
  seq bigint,
  reason text
);
