/** No unique constraint: a position that is created twice must be seen, not refused. */
export const CREATE_TABLE = `
  DROP TABLE IF EXISTS positions;
  CREATE TABLE positions (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, symbol text NOT NULL);
  CREATE INDEX ON positions (symbol)`

/** Positions that are opened at an exchange, and what the exchange has seen: every order, by the id that it came with. */
export const CREATE_LONG = `
  DROP TABLE IF EXISTS long_positions, exchange_orders;
  CREATE TABLE long_positions (symbol text PRIMARY KEY, order_id text NOT NULL, state text NOT NULL, process text NOT NULL);
  CREATE TABLE exchange_orders (symbol text NOT NULL, order_id text NOT NULL)`

export const FIND_LONG = 'SELECT order_id AS id, state FROM long_positions WHERE symbol = $1'
export const BEGIN_LONG = `INSERT INTO long_positions VALUES ($1, $2, 'opening', $3)`
/** As an exchange does that honours the client's id: the same order again is no other order. */
export const ORDER = 'INSERT INTO exchange_orders VALUES ($1, $2)'
export const FINISH_LONG = `UPDATE long_positions SET state = 'open' WHERE symbol = $1`
export const TAKE_OVER_LONG = 'UPDATE long_positions SET process = $2 WHERE symbol = $1'
/** A process that is at the exchange just now. */
export const ACTING = `SELECT process FROM long_positions WHERE state = 'opening' GROUP BY process ORDER BY random() LIMIT 1`
export const LEFT_OPENING = `SELECT count(*)::int AS n FROM long_positions WHERE state <> 'open'`
export const TWO_ORDERS = `
  SELECT count(*)::int AS n FROM (SELECT FROM exchange_orders GROUP BY symbol HAVING count(DISTINCT order_id) > 1) AS twice`
export const ORDERED = 'SELECT count(DISTINCT symbol)::int AS n FROM exchange_orders'

export const FIND = 'SELECT id FROM positions WHERE symbol = $1'
export const CREATE = 'INSERT INTO positions (symbol) VALUES ($1) RETURNING id'
export const DOUBLES = 'SELECT symbol FROM positions GROUP BY symbol HAVING count(*) > 1'
