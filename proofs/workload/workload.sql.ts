/**
 * Every operation reads a counter in one statement and writes it in another. `steps` counts the writes in the server. Two operations that
 * were not kept apart read the same value, and the counter is behind its steps forever: one comparison in the end finds it.
 */
export const CREATE_WORKLOAD = `
  CREATE TABLE counters (
    id text PRIMARY KEY,
    value bigint NOT NULL DEFAULT 0,
    steps bigint NOT NULL DEFAULT 0
  ) WITH (fillfactor = 50);
  CREATE TABLE made (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL);
  CREATE INDEX ON made (key)`

/** For what is locked as rows: they have to exist. */
export const ADD_COUNTERS = `INSERT INTO counters (id) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING`
export const READ_COUNTER = 'SELECT value::float8 AS value FROM counters WHERE id = $1'
export const WRITE_COUNTER = `
  INSERT INTO counters AS known (id, value, steps) VALUES ($1, $2, $3)
  ON CONFLICT (id) DO UPDATE SET value = $2, steps = known.steps + $3`

/** No unique index: two that create at once leave two rows. */
export const FIND_MADE = 'SELECT id::float8 AS id FROM made WHERE key = $1'
export const MAKE = 'INSERT INTO made (key) VALUES ($1) RETURNING id::float8 AS id'
export const UNMAKE = 'DELETE FROM made WHERE key = $1 RETURNING id'

/** Counters that have lost a write, and those of effects that are not what was enqueued. */
export const LOST_WRITES = `SELECT id, value::float8 AS value, steps::float8 AS steps FROM counters WHERE value <> steps ORDER BY id LIMIT 20`
export const UNEQUAL_EFFECTS = `
  SELECT s.id, e.effect, coalesce(c.steps, 0)::float8 AS effects, s.steps::float8 AS events
    FROM counters AS s
   CROSS JOIN unnest($1::text[]) AS e (effect)
    LEFT JOIN counters AS c ON c.id = e.effect || ':' || substr(s.id, length('Stream:') + 1)
   WHERE s.id LIKE 'Stream:%' AND coalesce(c.steps, 0) <> s.steps
   ORDER BY 1, 2 LIMIT 20`
