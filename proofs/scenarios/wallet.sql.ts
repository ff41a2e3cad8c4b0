import { SCHEMA } from './scenario.ts'

/** The lock as the first statement inside the transaction: its snapshot is taken before it waits. */
export const BEGIN_AND_LOCK = `BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT pg_advisory_xact_lock(hashtext('lockstep prove'))`

export const TABLES = `CREATE TABLE ${SCHEMA}.wallets (round int NOT NULL, id text PRIMARY KEY, balance int NOT NULL)`
export const PREPARE = `INSERT INTO ${SCHEMA}.wallets VALUES ($1, $2, 0)`
export const READ = `SELECT balance FROM ${SCHEMA}.wallets WHERE id = $1`
export const WRITE = `UPDATE ${SCHEMA}.wallets SET balance = $2 WHERE id = $1`
export const FOUND = `SELECT id AS key, balance AS value, '' AS op FROM ${SCHEMA}.wallets WHERE round = $1`
