/** Instances of a process, and the steps that were taken in them. */

export const SCHEMA = `
  CREATE TABLE IF NOT EXISTS lockstep_desk.instances (
    id text PRIMARY KEY,
    -- How many steps are done.
    steps integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
  );

  ALTER TABLE lockstep_desk.instances ADD COLUMN IF NOT EXISTS cancelled_at timestamptz;

  -- Of the provider of payments: one row per id, however often it was asked.
  CREATE TABLE IF NOT EXISTS lockstep_desk.charges (
    id text PRIMARY KEY,
    status text NOT NULL CHECK (status IN ('charged', 'void')),
    asked integer NOT NULL DEFAULT 1,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
  );

  -- Nothing is unique here: a step that was taken twice is to be seen.
  CREATE TABLE IF NOT EXISTS lockstep_desk.instance_steps (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance text NOT NULL REFERENCES lockstep_desk.instances,
    step integer NOT NULL,
    task text NOT NULL,
    -- Of the lease under which it was taken.
    fence bigint NOT NULL,
    process text NOT NULL,
    -- The Idempotency-Key of the request that asked for it.
    request text,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
  );
  CREATE INDEX IF NOT EXISTS steps_of_instance ON lockstep_desk.instance_steps (instance, place);`

export const CREATE = `INSERT INTO lockstep_desk.instances (id) VALUES ($1) ON CONFLICT DO NOTHING RETURNING id`

const COLUMNS = 'id, steps, cancelled_at IS NOT NULL AS cancelled'

export const READ = `SELECT ${COLUMNS} FROM lockstep_desk.instances WHERE id = $1`

export const READ_MANY = `SELECT ${COLUMNS} FROM lockstep_desk.instances WHERE id = ANY ($1::text[])`

export const LIST = `SELECT ${COLUMNS} FROM lockstep_desk.instances ORDER BY created_at DESC, id LIMIT 200`

export const STEPS_OF = `
  SELECT step, task, fence::text AS fence, process, at FROM lockstep_desk.instance_steps WHERE instance = $1 ORDER BY place`

export const STEP_OF_REQUEST = `
  SELECT step, task FROM lockstep_desk.instance_steps WHERE instance = $1 AND request = $2 ORDER BY place LIMIT 1`

export const ADVANCE = `
  UPDATE lockstep_desk.instances SET steps = steps + 1 WHERE id = $1 AND steps = $2 AND cancelled_at IS NULL`

export const CANCEL = `
  UPDATE lockstep_desk.instances SET cancelled_at = clock_timestamp() WHERE id = $1 AND steps = $2 AND cancelled_at IS NULL`

export const CHARGE = `
  INSERT INTO lockstep_desk.charges AS c (id, status) VALUES ($1, 'charged')
  ON CONFLICT (id) DO UPDATE SET asked = c.asked + 1 RETURNING status`

export const VOID_CHARGE = `
  INSERT INTO lockstep_desk.charges AS c (id, status) VALUES ($1, 'void')
  ON CONFLICT (id) DO UPDATE SET asked = c.asked RETURNING status`

export const RECORD = `
  INSERT INTO lockstep_desk.instance_steps (instance, step, task, fence, process, request) VALUES ($1, $2, $3, $4, $5, $6)`

/* The checks: each gives one row, how many were looked at and what is wrong with them. */

export const OUT_OF_ORDER = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s: step %s (%s) was taken where step %s should', instance, step, task, expected))
           FILTER (WHERE step <> expected), '{}') AS violations
    FROM (SELECT instance, step, task, row_number() OVER (PARTITION BY instance ORDER BY place) AS expected
            FROM lockstep_desk.instance_steps) AS each`

export const STEPS_DIFFER = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s: %s steps are counted, %s recorded', id, steps, recorded)) FILTER (WHERE steps <> recorded), '{}')
           AS violations
    FROM (SELECT i.id, i.steps, count(s.place) AS recorded
            FROM lockstep_desk.instances i LEFT JOIN lockstep_desk.instance_steps s ON s.instance = i.id
           GROUP BY i.id, i.steps) AS each`

export const FENCES_FALL = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s: step %s has the fence %s, the one before it %s', instance, step, fence, before))
           FILTER (WHERE fence <= before), '{}') AS violations
    FROM (SELECT instance, step, fence, lag(fence) OVER (PARTITION BY instance ORDER BY place) AS before
            FROM lockstep_desk.instance_steps) AS each`

/** A step that died in between has charged, and did not write it down: the next attempt does. */
export const CHARGES_DIFFER = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s has taken %s steps%s, and is %scharged', id, steps, CASE WHEN cancelled THEN ' and is cancelled' ELSE '' END,
                                   CASE WHEN charged THEN '' ELSE 'not ' END))
           FILTER (WHERE (steps > 2 AND NOT charged) OR (charged AND (cancelled OR steps < 2))), '{}') AS violations
    FROM (SELECT i.id, i.steps, i.cancelled_at IS NOT NULL AS cancelled, coalesce(c.status = 'charged', false) AS charged
            FROM lockstep_desk.instances i LEFT JOIN lockstep_desk.charges c ON c.id = i.id || ':charge') AS each`

export const REQUEST_TWICE = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s: the request %s took %s steps', instance, request, times)) FILTER (WHERE times > 1), '{}')
           AS violations
    FROM (SELECT instance, request, count(*) AS times FROM lockstep_desk.instance_steps
           WHERE request IS NOT NULL GROUP BY instance, request) AS each`
