/** What the ORMs write to, and a counter that their callers read before and write after. */
export const CREATE = `
  DROP TABLE IF EXISTS notes, orm_counter;
  CREATE TABLE notes (id text PRIMARY KEY);
  CREATE TABLE orm_counter (id text PRIMARY KEY, value int NOT NULL)`

export const COUNT_FROM_ZERO = 'INSERT INTO orm_counter VALUES ($1, 0)'
export const READ = 'SELECT value FROM orm_counter WHERE id = $1'
export const WRITE = 'UPDATE orm_counter SET value = $2 WHERE id = $1'
export const NOTES = 'SELECT id FROM notes WHERE id LIKE $1'
export const INSERT = 'INSERT INTO notes VALUES ($1)'

/** Whether another session can have a lock right now. */
export const IS_FREE = 'SELECT pg_try_advisory_xact_lock($1) AS free'

/** What a caller without Lockstep does: a transaction of its own, and the lock first. */
export const BEGIN = 'BEGIN'
export const LOCK = 'SELECT pg_advisory_xact_lock($1)'
export const COMMIT = 'COMMIT'
export const ROLLBACK = 'ROLLBACK'

/** With this setting off, the server sees the end of a string where its default sees none: what follows hides a COMMIT from a reader. */
export const READ_BACKSLASHES = 'SET LOCAL standard_conforming_strings = off'
export const HIDDEN_COMMIT = String.raw`SELECT 'x\''; COMMIT; --'`
