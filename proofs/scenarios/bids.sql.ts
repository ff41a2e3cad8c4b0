import { SCHEMA } from './scenario.ts'

/** No constraint on the balance: a wallet below zero must be seen, not refused. */
export const TABLES = `
  CREATE TABLE ${SCHEMA}.bidders (id text PRIMARY KEY, round int NOT NULL, balance int NOT NULL);
  CREATE TABLE ${SCHEMA}.bids (round int NOT NULL, op text NOT NULL, wallet text NOT NULL, balance int NOT NULL)`
export const PREPARE = `INSERT INTO ${SCHEMA}.bidders SELECT unnest($2::text[]), $1, $3`
export const READ = `SELECT balance FROM ${SCHEMA}.bidders WHERE id = $1`
export const ADD = `UPDATE ${SCHEMA}.bidders SET balance = balance + $2 WHERE id = $1 RETURNING balance`
export const RECORD = `INSERT INTO ${SCHEMA}.bids VALUES ($1, $2, $3, $4)`
export const FOUND = `
  SELECT id AS key, balance AS value, '' AS op FROM ${SCHEMA}.bidders WHERE round = $1
  UNION ALL SELECT 'effect:' || wallet, balance, op FROM ${SCHEMA}.bids WHERE round = $1`
