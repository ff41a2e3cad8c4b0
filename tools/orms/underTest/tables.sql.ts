/** The tables that the ORMs work on. `notes (id text PRIMARY KEY)` is there in tests already. */
export const CREATE_ORM_TABLES = `
  CREATE TABLE IF NOT EXISTS notes (id text PRIMARY KEY);
  CREATE TABLE orm_counters (name text PRIMARY KEY, value integer NOT NULL);
  CREATE TABLE orm_samples (
    id text PRIMARY KEY,
    big bigint NOT NULL,
    amount numeric NOT NULL,
    numbers integer[] NOT NULL,
    texts text[] NOT NULL,
    document jsonb NOT NULL,
    at timestamptz(3) NOT NULL,
    day date NOT NULL,
    flag boolean
  )`

export const START_COUNTER = 'INSERT INTO orm_counters VALUES ($1, 0) ON CONFLICT (name) DO UPDATE SET value = 0'

export const COUNTER = 'SELECT value FROM orm_counters WHERE name = $1'

/** Fails with the SQLSTATE, inside the server. */
export function raise(state: string): string {
  return `DO $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = '${state}'; END $$`
}

/** Ends the session that runs it. */
export const END_OWN_SESSION = 'SELECT pg_terminate_backend(pg_backend_pid())'
