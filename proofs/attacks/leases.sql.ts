/** Document 001's table and its two queries, as they are written. */
export const CREATE_001 = `
  DROP TABLE IF EXISTS instance_locks;
  CREATE TABLE instance_locks (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    instance_id BIGINT NOT NULL,
    lock_token UUID UNIQUE NOT NULL DEFAULT gen_random_uuid(),
    locked_at TIMESTAMPTZ NOT NULL DEFAULT CURRENT_TIMESTAMP,
    locked_until TIMESTAMPTZ NOT NULL,
    locked_by VARCHAR(255) NOT NULL
  )`

export const ACQUIRE_001 = `
  WITH lock_attempt AS (SELECT pg_try_advisory_xact_lock($1::bigint) AS acquired)
  INSERT INTO instance_locks (instance_id, locked_until, locked_by)
  SELECT $1::bigint, CURRENT_TIMESTAMP + interval '5 minutes', 'somebody'
    FROM lock_attempt
   WHERE acquired = TRUE
     AND NOT EXISTS (SELECT 1 FROM instance_locks WHERE instance_id = $1::bigint AND locked_until > CURRENT_TIMESTAMP)
  RETURNING lock_token`

/** What a holder writes, for the zombie to overwrite. */
export const CREATE_STATE = `
  DROP TABLE IF EXISTS state;
  CREATE TABLE state (name text PRIMARY KEY, owner text NOT NULL)`

export const WRITE_STATE = `
  INSERT INTO state (name, owner) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner`

export const READ_STATE = 'SELECT owner FROM state WHERE name = $1'

/** Whether the backends that hold something in this table have gone. */
export const LEFT_MS = `
  SELECT ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::float8 AS left FROM lockstep.leases WHERE name = $1`
