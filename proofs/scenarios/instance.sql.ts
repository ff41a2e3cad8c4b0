import { SCHEMA } from './scenario.ts'

/** The table of document 001 beside ours; no constraint on the step: one that runs twice must be seen, not refused. */
export const TABLES = `
  CREATE TABLE ${SCHEMA}.instances (id text PRIMARY KEY, round int NOT NULL, step int NOT NULL);
  CREATE TABLE ${SCHEMA}.steps (round int NOT NULL, instance text NOT NULL, op text NOT NULL);
  CREATE TABLE ${SCHEMA}.instance_locks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, instance_id text NOT NULL, lock_token uuid NOT NULL DEFAULT gen_random_uuid(),
    locked_until timestamptz NOT NULL, locked_by text NOT NULL);
  CREATE INDEX ON ${SCHEMA}.instance_locks (instance_id)`
export const READ = `SELECT step FROM ${SCHEMA}.instances WHERE id = $1`
export const WRITE = `
  INSERT INTO ${SCHEMA}.instances VALUES ($1, $3, $2) ON CONFLICT (id) DO UPDATE SET step = EXCLUDED.step`
export const RECORD = `INSERT INTO ${SCHEMA}.steps VALUES ($1, $2, $3)`

// code: naive
/** As document 001 has it: the snapshot is older than the lock. */
export const ACQUIRE_001 = `
  WITH lock_attempt AS (SELECT pg_try_advisory_xact_lock(hashtext($1)) AS acquired)
  INSERT INTO ${SCHEMA}.instance_locks (instance_id, locked_until, locked_by)
  SELECT $1, now() + $2 * interval '1 millisecond', $3 FROM lock_attempt
   WHERE acquired AND NOT EXISTS (SELECT FROM ${SCHEMA}.instance_locks WHERE instance_id = $1 AND locked_until > now())
  RETURNING lock_token`
// code: end
export const RELEASE_001 = `DELETE FROM ${SCHEMA}.instance_locks WHERE instance_id = $1 AND lock_token = $2`

export const FOUND = `
  SELECT id AS key, step AS value, '' AS op FROM ${SCHEMA}.instances WHERE round = $1
  UNION ALL SELECT 'effect:' || instance, NULL, op FROM ${SCHEMA}.steps WHERE round = $1`
