/** A few accounts; each transaction that committed has added one to one of them. */
export const CREATE = `
  DROP TABLE IF EXISTS account;
  CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL);
  INSERT INTO account SELECT id, 0 FROM generate_series(1, 100) id`

export const READ = 'SELECT balance FROM account WHERE id = $1'
export const WRITE = 'UPDATE account SET balance = $2 WHERE id = $1'
export const SUM = 'SELECT sum(balance)::int AS sum FROM account'
export const NOISE = 'SELECT 1'

/**
 * Cancels at random for a while, from inside the server: over the wire nobody would hit a statement that takes microseconds.
 * Logins are left in peace: they have no statement. Every other one goes to a backend that has an advisory lock, which is where a hand-over could be struck in the middle.
 */
export function cancelFor(milliseconds: number): string {
  return `
    DO $cancel$
    DECLARE
      until timestamptz := clock_timestamp() + interval '${milliseconds} ms';
    BEGIN
      WHILE clock_timestamp() < until LOOP
        PERFORM pg_stat_clear_snapshot();
        PERFORM pg_cancel_backend(pid) FROM (
          SELECT pid FROM pg_stat_activity
           WHERE backend_type = 'client backend' AND application_name <> 'lab' AND pid <> pg_backend_pid()
             AND state IN ('active', 'idle', 'idle in transaction', 'idle in transaction (aborted)')
           ORDER BY random() LIMIT 1) victim;
        PERFORM pg_sleep(random() * 0.002);
        PERFORM pg_cancel_backend(pid) FROM (
          SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted ORDER BY random() LIMIT 1) holder;
        PERFORM pg_sleep(random() * 0.002);
      END LOOP;
    END
    $cancel$`
}
