import { SCHEMA } from './scenario.ts'

export const ACCOUNTS_TABLE = `${SCHEMA}.accounts`
/** No constraint on the operation: what is written twice must be seen, not refused. */
export const TABLES = `
  CREATE TABLE ${ACCOUNTS_TABLE} (id text PRIMARY KEY, round int NOT NULL, balance bigint NOT NULL);
  CREATE TABLE ${SCHEMA}.transfers (round int NOT NULL, op text NOT NULL, source text NOT NULL, target text NOT NULL, amount int NOT NULL)`
export const PREPARE = `INSERT INTO ${ACCOUNTS_TABLE} SELECT unnest($2::text[]), $1, $3`
export const BALANCE = `SELECT balance::float8 FROM ${ACCOUNTS_TABLE} WHERE id = $1`
export const SET_BALANCE = `UPDATE ${ACCOUNTS_TABLE} SET balance = $2 WHERE id = $1`
export const RECORD = `INSERT INTO ${SCHEMA}.transfers VALUES ($1, $2, $3, $4, $5)`

/** All new balances and all transfers of a batch, in one statement. */
export const WRITE_BATCH = `
  WITH moved AS (
    UPDATE ${ACCOUNTS_TABLE} SET balance = ($3::bigint[])[array_position($2::text[], id)] WHERE id = ANY($2))
  INSERT INTO ${SCHEMA}.transfers SELECT $1, * FROM unnest($4::text[], $5::text[], $6::text[], $7::int[])`
export const FOUND = `
  SELECT id AS key, balance::float8 AS value, '' AS op FROM ${ACCOUNTS_TABLE} WHERE round = $1
  UNION ALL SELECT 'effect:' || source || ' > ' || target, amount, op FROM ${SCHEMA}.transfers WHERE round = $1`
