import { SCHEMA } from './scenario.ts'

export const TABLES = `CREATE TABLE ${SCHEMA}.wallets (round int NOT NULL, id text PRIMARY KEY, balance int NOT NULL)`
export const PREPARE = `INSERT INTO ${SCHEMA}.wallets SELECT $1, unnest($2::text[]), 0`
export const READ = `SELECT balance FROM ${SCHEMA}.wallets WHERE id = $1`
export const WRITE = `UPDATE ${SCHEMA}.wallets SET balance = $2 WHERE id = $1`
export const FOUND = `SELECT id AS key, balance AS value, '' AS op FROM ${SCHEMA}.wallets WHERE round = $1`
