-- compatible-from: 1
-- Tables that can be written only under a lock or a lease. docs/decisions/0047-guards.md has the protocol. Each guard also has a trigger
-- function (guard_7) and three sequences that count (guard_7_unlocked, guard_7_listed, guard_7_refused), which guard_add() makes.
CREATE TABLE :"schema".guards (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- With its schema, quoted where needed: as it was called when the guard was added.
  relation text NOT NULL,
  key text NOT NULL,
  columns text[] NOT NULL,
  held text NOT NULL CHECK (held IN ('lock', 'lease')),
  mode text NOT NULL CHECK (mode IN ('observe', 'enforce', 'percent')),
  percent integer CHECK (percent BETWEEN 0 AND 100),
  reason text NOT NULL DEFAULT '',
  added_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  UNIQUE (relation, key),
  CHECK ((mode = 'percent') = (percent IS NOT NULL))
);

-- Who wrote without the lock: a few a minute, for a week. Only inserted into by writers, so that none waits for another.
CREATE TABLE :"schema".guard_samples (
  -- A key, so that samples can be deleted under a publication of all tables.
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  guard integer NOT NULL,
  at timestamptz NOT NULL DEFAULT clock_timestamp(),
  operation text NOT NULL,
  -- Null: TRUNCATE, which concerns every key.
  key text,
  application text NOT NULL,
  role text NOT NULL,
  -- The statement of the client, without its literals.
  query text NOT NULL
);
CREATE INDEX guard_samples_guard_at ON :"schema".guard_samples (guard, at);
