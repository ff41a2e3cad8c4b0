/** Accounts that new code writes under a lock, and old code without. Each old program has rows of its own to delete. */
export function create(programs: number, rounds: number): string {
  return `
    DROP TABLE IF EXISTS guarded_account;
    CREATE TABLE guarded_account (id integer PRIMARY KEY, balance bigint NOT NULL DEFAULT 0, writer text NOT NULL DEFAULT '');
    INSERT INTO guarded_account (id) SELECT generate_series(1, 40);
    INSERT INTO guarded_account (id) SELECT program * 10000 + round FROM generate_series(1, ${programs}) program, generate_series(1, ${rounds}) round`
}

export const TABLE = 'guarded_account'

/** What old code does, one row a statement. */
export function legacyWrites(id: number, program: number, round: number): readonly string[] {
  return [
    `UPDATE guarded_account SET balance = balance + 1, writer = 'legacy' WHERE id = ${id}`,
    `INSERT INTO guarded_account (id) VALUES (${id}) ON CONFLICT (id) DO UPDATE SET writer = 'legacy'`,
    `INSERT INTO guarded_account (id, writer) VALUES (${program * 100_000 + round}, 'legacy')`,
    `DELETE FROM guarded_account WHERE id = ${program * 10_000 + round}`,
  ]
}

/** Moves a row to a key that is not locked. */
export function moveAway(id: number): string {
  return `UPDATE guarded_account SET id = ${id + 5000} WHERE id = ${id}`
}

export function add(id: number): string {
  return `UPDATE guarded_account SET balance = balance + 1 WHERE id = ${id}`
}

/** Plain SQL that takes part. */
export function addByHand(id: number): string {
  return `BEGIN; SELECT pg_advisory_xact_lock(lockstep.lock_id('lock', 'Account:${id}')); ${add(id)}; COMMIT`
}

/** What was added; which rows old code has written; which it has left of those that it wanted to delete. */
export const ADDED = `
  SELECT sum(balance)::int AS added, count(*) FILTER (WHERE writer <> '')::int AS legacy,
         count(*) FILTER (WHERE id BETWEEN 10000 AND 99999)::int AS "left"
    FROM guarded_account`
