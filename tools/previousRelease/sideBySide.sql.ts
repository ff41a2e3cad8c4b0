/** What two processes write, and by what a test finds that they did not exclude each other or lost the order. */
export const CREATE_SIDE_BY_SIDE = `
  CREATE TABLE counters (id text PRIMARY KEY, value integer NOT NULL);
  CREATE TABLE holders (place integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, fence bigint NOT NULL, left_at timestamptz);
  CREATE TABLE deliveries (place integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL, key text NOT NULL, seq integer NOT NULL)`

export const READ_COUNTER = `SELECT value FROM counters WHERE id = $1`
export const WRITE_COUNTER = `UPDATE counters SET value = $2 WHERE id = $1`

/** Gives no row where another holder is inside. */
export const ENTER = `
  INSERT INTO holders (name, fence) SELECT $1, $2 WHERE NOT EXISTS (SELECT FROM holders WHERE left_at IS NULL) RETURNING place`
export const LEAVE = `UPDATE holders SET left_at = clock_timestamp() WHERE place = $1`

export const DELIVER = `INSERT INTO deliveries (name, key, seq) VALUES ($1, $2, $3)`

/** Longer than the library allows: a dump stays for years. */
export const KEEP_ANSWERS = `UPDATE lockstep.idempotency SET expires_at = '2999-01-01'`
