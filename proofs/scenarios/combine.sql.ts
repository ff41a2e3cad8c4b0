import { SCHEMA } from './scenario.ts'

/** No constraint on the operation: a deposit that is written twice must be seen, not refused. */
export const TABLES = `
  CREATE TABLE ${SCHEMA}.hot_accounts (id text PRIMARY KEY, round int NOT NULL, balance int NOT NULL);
  CREATE TABLE ${SCHEMA}.deposits (round int NOT NULL, account text NOT NULL, op text NOT NULL)`
export const PREPARE = `INSERT INTO ${SCHEMA}.hot_accounts SELECT unnest($2::text[]), $1, 0`
export const ADD = `UPDATE ${SCHEMA}.hot_accounts SET balance = balance + $2 WHERE id = $1 RETURNING balance`
export const RECORD = `INSERT INTO ${SCHEMA}.deposits SELECT $1, $2, unnest($3::text[])`
export const FOUND = `
  SELECT id AS key, balance AS value, '' AS op FROM ${SCHEMA}.hot_accounts WHERE round = $1
  UNION ALL SELECT 'effect:' || account, NULL, op FROM ${SCHEMA}.deposits WHERE round = $1`
