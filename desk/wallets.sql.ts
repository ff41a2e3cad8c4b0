/** The races' table, and the transactions that a program without Lockstep would write. */

export const CREATE_WALLETS = `
  CREATE SCHEMA IF NOT EXISTS lockstep_desk;
  CREATE TABLE IF NOT EXISTS lockstep_desk.wallets (id text PRIMARY KEY, balance integer NOT NULL)`

export const FILL_WALLET = `
  INSERT INTO lockstep_desk.wallets (id, balance) VALUES ($1, 0) ON CONFLICT (id) DO UPDATE SET balance = 0`

export const ANYTHING = 'SELECT 1'

export const READ_BALANCE = 'SELECT balance FROM lockstep_desk.wallets WHERE id = $1'

export const WRITE_BALANCE = 'UPDATE lockstep_desk.wallets SET balance = $2 WHERE id = $1'

export const BEGIN_READ_COMMITTED = 'BEGIN ISOLATION LEVEL READ COMMITTED'

export const BEGIN_SERIALIZABLE = 'BEGIN ISOLATION LEVEL SERIALIZABLE'

/** The lock that Lockstep takes for the same key: what differs between the races is only when it is taken. */
export const LOCK_INSIDE = `SELECT pg_advisory_xact_lock(lockstep.lock_id('lock', $1))`

export const COMMIT = 'COMMIT'

export const ROLLBACK = 'ROLLBACK'
