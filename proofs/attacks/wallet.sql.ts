/** One wallet, and document 004's pattern as it is written. */
export const CREATE = `
  DROP TABLE IF EXISTS wallet;
  CREATE TABLE wallet (id int PRIMARY KEY, balance int NOT NULL);
  INSERT INTO wallet VALUES (1, 0)`

export const READ = 'SELECT balance FROM wallet WHERE id = 1'
export const WRITE = 'UPDATE wallet SET balance = $1 WHERE id = 1'

/** The lock as the first statement inside the transaction: its snapshot is taken before it waits. */
export function lockInside(lockId: bigint): string {
  return `BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT pg_advisory_xact_lock(${lockId})`
}

export const COMMIT = 'COMMIT'
export const ROLLBACK = 'ROLLBACK'
