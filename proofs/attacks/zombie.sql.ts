/** What a holder writes, for the zombie to overwrite. */
export const CREATE_STATE = `
  DROP TABLE IF EXISTS state;
  CREATE TABLE state (name text PRIMARY KEY, owner text NOT NULL)`

export const WRITE_STATE = `
  INSERT INTO state (name, owner) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner`

export const READ_STATE = 'SELECT owner FROM state WHERE name = $1'
