-- compatible-from: 1
-- Outbox tables of others that are imported. docs/decisions/0057-import.md has the protocol. Each import also has a trigger function
-- (outbox_import_7), which outbox_import_cut() makes.
CREATE TABLE :"schema".outbox_imports (
  id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- With its schema, quoted where needed.
  relation text NOT NULL,
  -- Templates of topic and key, and the names of columns: see outbox_import_parts().
  definition jsonb NOT NULL,
  reason text NOT NULL,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- The number of planned rows. Those up to `copied` are in the outbox, except for rows that were deleted by then.
  planned bigint NOT NULL DEFAULT 0,
  copied bigint NOT NULL DEFAULT 0,
  gone bigint NOT NULL DEFAULT 0,
  -- Since when the trigger is there.
  cut_at timestamptz,
  finished_at timestamptz
);
CREATE UNIQUE INDEX outbox_imports_unfinished ON :"schema".outbox_imports (relation) WHERE finished_at IS NULL;

-- The rows of an import in the order in which they are copied, and the numbers that their events have.
CREATE TABLE :"schema".outbox_import_rows (
  import integer NOT NULL,
  place bigint NOT NULL,
  id text NOT NULL,
  stream uuid,
  seq bigint,
  PRIMARY KEY (import, place)
);
CREATE UNIQUE INDEX outbox_import_rows_id ON :"schema".outbox_import_rows (import, id);
