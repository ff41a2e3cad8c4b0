import { SCHEMA } from './scenario.ts'

/** A leader by heartbeat, as it is often written: a process that finds the last beat too old writes its own. */
export const TABLES = `
  CREATE TABLE ${SCHEMA}.leaders (name text PRIMARY KEY, owner text NOT NULL, beat timestamptz NOT NULL)`
export const BEAT = `
  INSERT INTO ${SCHEMA}.leaders VALUES ($1, $2, clock_timestamp())
  ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, beat = EXCLUDED.beat
   WHERE leaders.owner = EXCLUDED.owner OR leaders.beat < clock_timestamp() - $3 * interval '1 millisecond'
  RETURNING owner`
export const RESIGN = `DELETE FROM ${SCHEMA}.leaders WHERE name = $1 AND owner = $2`
