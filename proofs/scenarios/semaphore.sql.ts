import { SCHEMA } from './scenario.ts'

export const TABLES = `
  CREATE TABLE ${SCHEMA}.permits (name text NOT NULL, owner text NOT NULL, until timestamptz NOT NULL);
  CREATE INDEX ON ${SCHEMA}.permits (name)`
export const COUNT_PERMITS = `SELECT count(*)::int AS taken FROM ${SCHEMA}.permits WHERE name = $1 AND until > clock_timestamp()`
export const TAKE_PERMIT = `INSERT INTO ${SCHEMA}.permits VALUES ($1, $2, clock_timestamp() + $3 * interval '1 millisecond')`
export const GIVE_PERMIT = `DELETE FROM ${SCHEMA}.permits WHERE name = $1 AND owner = $2`
