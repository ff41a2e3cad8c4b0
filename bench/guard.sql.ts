/** Two tables alike, of which one gets a guard. */
export const CREATE = `
  DROP TABLE IF EXISTS plain_account, guarded_account;
  CREATE TABLE plain_account (id int PRIMARY KEY, balance bigint NOT NULL);
  CREATE TABLE guarded_account (id int PRIMARY KEY, balance bigint NOT NULL);
  INSERT INTO plain_account SELECT n, 0 FROM generate_series(1, 1000) n;
  INSERT INTO guarded_account SELECT n, 0 FROM generate_series(1, 1000) n`

export type Table = 'plain_account' | 'guarded_account'

export function addTo(table: Table): string {
  return `UPDATE ${table} SET balance = balance + 1 WHERE id = $1`
}

/** One message of plain SQL, with the lock or without. */
export function addByHand(table: Table, id: number, locks: boolean): string {
  const lock = locks ? `SELECT pg_advisory_xact_lock(lockstep.lock_id('lock', 'Account:${id}'));` : ''
  return `BEGIN; ${lock} UPDATE ${table} SET balance = balance + 1 WHERE id = ${id}; COMMIT`
}

/** Locks of another session, which make the list of locks longer. */
export function foreignLocks(count: number): string {
  return `SELECT count(pg_advisory_lock(n)) FROM generate_series(1, ${count}) n`
}

/** A statement that writes many rows without their locks. */
export function addToMany(table: Table, rows: number): string {
  return `UPDATE ${table} SET balance = balance + 1 WHERE id <= ${rows}`
}
