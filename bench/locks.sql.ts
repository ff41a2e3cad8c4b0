/** The work under the lock, and what a careful engineer would write around it by hand. */

export const CREATE = `
  DROP TABLE IF EXISTS account;
  CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL);
  INSERT INTO account SELECT n, 0 FROM generate_series(1, 1000) n`

export const ADD = 'UPDATE account SET balance = balance + 1 WHERE id = $1'

/** READ COMMITTED: stated isolation, lock before the first read, and the id by which a lost COMMIT can be looked up. */
export function openByHand(lockId: bigint): string {
  return `BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(${lockId}), pg_current_xact_id()::text, pg_backend_pid()`
}

/**
 * SERIALIZABLE: the lock is held before the snapshot is taken, a killed waiter does not stay, the role's statement_timeout does not
 * cut the wait, and nothing is ever left on the session, behind a pooler either.
 */
export function handOverByHand(lockId: bigint): string {
  return `BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL client_connection_check_interval = 1000;
    SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 2000; SELECT pg_advisory_xact_lock(${lockId});
    SELECT pg_advisory_lock(${lockId}); COMMIT AND CHAIN; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;
    SELECT pg_advisory_xact_lock(${lockId}), pg_advisory_unlock(${lockId}), pg_current_xact_id()::text, pg_backend_pid()`
}

export const COMMIT = 'COMMIT'
export const ROLLBACK = 'ROLLBACK'
