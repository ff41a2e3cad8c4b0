import { SCHEMA } from './scenario.ts'

/** A lock with an end, as many have it: a row that is free once its time is over. */
export const TABLES = `
  CREATE TABLE ${SCHEMA}.timed_locks (name text PRIMARY KEY, owner text NOT NULL, until timestamptz NOT NULL)`
export const TAKE_TIMED = `
  INSERT INTO ${SCHEMA}.timed_locks VALUES ($1, $2, clock_timestamp() + $3 * interval '1 millisecond')
  ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, until = EXCLUDED.until
   WHERE timed_locks.until < clock_timestamp()
  RETURNING owner`
export const GIVE_TIMED = `DELETE FROM ${SCHEMA}.timed_locks WHERE name = $1 AND owner = $2`
