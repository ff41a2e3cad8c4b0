import { SCHEMA } from './scenario.ts'

/** No constraint on the symbol: a position that is created twice must be seen, not refused. */
export const TABLES = `
  CREATE TABLE ${SCHEMA}.positions (round int NOT NULL, symbol text NOT NULL, order_id text NOT NULL, state text NOT NULL);
  CREATE INDEX ON ${SCHEMA}.positions (symbol)`
// code: naive
export const FIND = `SELECT order_id, state FROM ${SCHEMA}.positions WHERE symbol = $1`
// code: end
export const BEGIN_OPENING = `INSERT INTO ${SCHEMA}.positions VALUES ($1, $2, $3, 'opening')`
// code: naive
export const OPEN = `INSERT INTO ${SCHEMA}.positions VALUES ($1, $2, $3, 'open')`
// code: end
export const FINISH = `UPDATE ${SCHEMA}.positions SET state = 'open' WHERE symbol = $1`
/** One that is not open says so. */
export const FOUND = `
  SELECT symbol AS key, order_id || CASE state WHEN 'open' THEN '' ELSE ' (' || state || ')' END AS value, '' AS op
    FROM ${SCHEMA}.positions WHERE round = $1`
