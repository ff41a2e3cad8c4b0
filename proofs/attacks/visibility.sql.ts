/** What the server itself says of every advisory lock: the list is compared with it, row by row. */
export const EVERY_LOCK = `
  SELECT ((classid::bigint << 32) | objid::bigint)::text AS id, pid, granted,
         CASE mode WHEN 'ShareLock' THEN 'shared' ELSE 'exclusive' END AS mode
    FROM pg_locks
   WHERE locktype = 'advisory' AND objsubid = 1
     AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   ORDER BY id, granted DESC, waitstart, pid`

/** Who the server says is in the way of each waiter. */
export const BLOCKERS = `
  SELECT pid, pg_blocking_pids(pid) AS blockers FROM pg_locks WHERE locktype = 'advisory' AND NOT granted`

/** Comes true when so many stand in the queues. */
export const SO_MANY_WAIT = `
  SELECT count(*) = $1 AS yes FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND waitstart IS NOT NULL`

export const SO_MANY_NAMES = `SELECT count(*) = $1 AS yes FROM lockstep.lock_names WHERE key NOT LIKE 'Old:%'`

export const WAITS_FOR_ROW = `
  SELECT count(*) = 1 AS yes FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted`

/** As psql would: takes the lock of a key. */
export function takeLock(shared: boolean): string {
  return `SELECT pg_advisory_xact_lock${shared ? '_shared' : ''}(lockstep.lock_id('lock', $1))`
}

export const BEGIN = 'BEGIN'

export const ROWS = `
  CREATE TABLE accounts (id int PRIMARY KEY, balance int);
  INSERT INTO accounts VALUES (1, 100)`

export const CHANGE_ROW = 'UPDATE accounts SET balance = balance + 1 WHERE id = 1'

/** Old names, as after days of work: the list has to find a few among them. */
export const OLD_NAMES = `
  INSERT INTO lockstep.lock_names SELECT n, 'Old:' || n FROM generate_series(1, 40000) n`

/** The server's own clock on a query. */
export function timed(query: string): string {
  return `EXPLAIN (ANALYZE, TIMING, FORMAT JSON) ${query}`
}
