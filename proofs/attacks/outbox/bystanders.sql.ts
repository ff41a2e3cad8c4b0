/** Tables with indexes: a session that reads them all has a lock on each, and on each index. */
export const CREATE_BYSTANDERS = Array.from(
  { length: 10 },
  (_, n) => `CREATE TABLE bystander_${n} (id int PRIMARY KEY, name text UNIQUE)`,
).join(';')
export const LOCK_TABLES = `LOCK TABLE ${Array.from({ length: 10 }, (_, n) => `bystander_${n}`).join(', ')} IN ROW EXCLUSIVE MODE`

/** Advisory locks of its own. */
export const LOCK_SOME = `SELECT count(pg_advisory_xact_lock($1, n)) FROM generate_series(1, 40) AS n`
