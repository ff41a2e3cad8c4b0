/** An outbox table as services write them, and a counter for each key, under whose row lock its events are written. */
export const createOldOutbox = (table: string): string => `
  CREATE TABLE ${table} (id bigserial PRIMARY KEY, aggregate text NOT NULL, payload jsonb NOT NULL, sent_at timestamptz);
  CREATE TABLE ${table}_counters (key text PRIMARY KEY, n integer NOT NULL)`

/** The given number of unsent rows for each of the given number of keys. */
export const fillOldOutbox = (table: string, keys: number, rows: number): string => `
  INSERT INTO ${table} (aggregate, payload)
  SELECT 'k' || i % ${keys}, jsonb_build_object('n', i / ${keys} + 1) FROM generate_series(0, ${rows - 1}) AS i;
  INSERT INTO ${table}_counters SELECT 'k' || k, (SELECT count(*) FROM generate_series(0, ${rows - 1}) AS i WHERE i % ${keys} = k)
    FROM generate_series(0, ${keys - 1}) AS k`

/** What a transaction of old or new code begins with: the next number of the key, under its row lock. */
export const countUp = (table: string): string => `UPDATE ${table}_counters SET n = n + 1 WHERE key = $1 RETURNING n`

export const insertOld = (table: string): string =>
  `INSERT INTO ${table} (aggregate, payload) VALUES ($1, jsonb_build_object('n', $2::int))`

export const readCounters = (table: string): string => `SELECT key, n FROM ${table}_counters`

/** Sessions that wait for the lock of the table which keeps writers out. */
export const waitingForCut = (table: string): string =>
  `SELECT pid FROM pg_locks WHERE relation = '${table}'::regclass AND mode = 'ShareRowExclusiveLock' AND NOT granted`

export const sessionsOf = (pids: readonly number[]): string =>
  `SELECT pid FROM pg_stat_activity WHERE pid IN (${pids.join(', ')})`

export const triggersOf = (table: string): string => `SELECT FROM pg_trigger WHERE tgrelid = '${table}'::regclass`

/** The control: what has a larger number than the last one that was read. */
export const readBehind = (table: string): string =>
  `SELECT id::int AS id, aggregate, (payload->>'n')::int AS n FROM ${table} WHERE id > $1 ORDER BY id LIMIT 500`

/** The lock of a stream of which every step has rows. */
export const HOLD_STREAM = `SELECT lockstep.enqueue($1, 'k0', '{"n": 0}')`

/** Sessions of the import that wait for the lock of a stream or of a group of them. */
export const WAITING_STEPS = `
  SELECT l.pid FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
   WHERE l.locktype = 'advisory' AND NOT l.granted AND a.application_name = 'import'`
