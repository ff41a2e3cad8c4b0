/** One row for each payment; `attempt` is the attempt that wrote it. */
export const CREATE = `
  DROP TABLE IF EXISTS payment;
  CREATE TABLE payment (id text PRIMARY KEY, attempt int NOT NULL)`

export const PAY = 'INSERT INTO payment (id, attempt) VALUES ($1, $2)'
export const PAID = 'SELECT attempt FROM payment WHERE id = $1'
export const XID = 'SELECT pg_current_xact_id()::text AS xid'

/** The answer to a caller that does not check in which epoch of the server the id was given out. */
export const NAIVE_STATUS = 'SELECT pg_xact_status($1::xid8) AS status'

/** Whether the session is gone whose COMMIT is still on its way. */
export const NOBODY_PAYS = `
  SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'INSERT INTO payment%' AND state <> 'idle') AS yes`
