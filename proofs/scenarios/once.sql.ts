/** No unique constraint: a position that is created twice must be seen, not refused. */
export const CREATE_TABLE = `
  DROP TABLE IF EXISTS positions;
  CREATE TABLE positions (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, symbol text NOT NULL);
  CREATE INDEX ON positions (symbol)`

export const FIND = 'SELECT id FROM positions WHERE symbol = $1'
export const CREATE = 'INSERT INTO positions (symbol) VALUES ($1) RETURNING id'
export const DOUBLES = 'SELECT symbol FROM positions GROUP BY symbol HAVING count(*) > 1'
