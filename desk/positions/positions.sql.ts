import { DEFAULT_EXCHANGE } from '../exchange/index.ts'

/** The desk's positions. The index is for a path that takes no lease: with it, a second open position is impossible. */
export const SCHEMA = `
  CREATE SCHEMA IF NOT EXISTS lockstep_desk;
  CREATE TABLE IF NOT EXISTS lockstep_desk.positions (
    id uuid PRIMARY KEY,
    symbol text NOT NULL,
    side text NOT NULL CHECK (side IN ('long', 'short')),
    quantity bigint NOT NULL CHECK (quantity > 0),
    status text NOT NULL CHECK (status IN ('opening', 'active', 'closing', 'closed', 'failed')),
    origin text NOT NULL CHECK (origin IN ('signal', 'adopted')),
    exchange_id bigint,
    entry_price bigint,
    stop_price bigint,
    stop_number int NOT NULL DEFAULT 1,
    reason text,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz);
  ALTER TABLE lockstep_desk.positions
    ADD COLUMN IF NOT EXISTS exchange text NOT NULL DEFAULT '${DEFAULT_EXCHANGE}',
    -- After this time its entry is not executed any more.
    ADD COLUMN IF NOT EXISTS valid_until timestamptz,
    -- The Idempotency-Key of the request that opened it, and of the one that closed it.
    ADD COLUMN IF NOT EXISTS request text,
    ADD COLUMN IF NOT EXISTS close_request text;
  DROP INDEX IF EXISTS lockstep_desk.positions_one_open;
  CREATE UNIQUE INDEX IF NOT EXISTS positions_one_open_per_exchange ON lockstep_desk.positions (symbol, exchange)
    WHERE status IN ('opening', 'active', 'closing');
  CREATE UNIQUE INDEX IF NOT EXISTS positions_one_per_request ON lockstep_desk.positions (symbol, exchange, request)
    WHERE status <> 'failed';
  CREATE INDEX IF NOT EXISTS positions_exchange_id ON lockstep_desk.positions (exchange_id);
  CREATE INDEX IF NOT EXISTS positions_by_symbol ON lockstep_desk.positions (symbol, created_at DESC);
  CREATE TABLE IF NOT EXISTS lockstep_desk.position_rounds (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    holder text NOT NULL,
    took_ms double precision NOT NULL,
    positions int NOT NULL,
    repairs int NOT NULL);
  ALTER TABLE lockstep_desk.position_rounds
    ADD COLUMN IF NOT EXISTS differences int NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS exchange text NOT NULL DEFAULT '${DEFAULT_EXCHANGE}'`

export const FIND_OPEN = `
  SELECT * FROM lockstep_desk.positions
   WHERE symbol = $1 AND exchange = $2 AND status IN ('opening', 'active', 'closing')`

/** What a request has opened: one that failed has left nothing, and can be tried again. */
export const FIND_OF_REQUEST = `
  SELECT * FROM lockstep_desk.positions WHERE symbol = $1 AND exchange = $2 AND request = $3 AND status <> 'failed'`

export const FIND_CLOSED_BY = `
  SELECT * FROM lockstep_desk.positions WHERE symbol = $1 AND exchange = $2 AND close_request = $3 LIMIT 1`

export const FIND_LAST = `
  SELECT * FROM lockstep_desk.positions WHERE symbol = $1 AND exchange = $2
   ORDER BY status IN ('opening', 'active', 'closing') DESC, created_at DESC, id LIMIT 1`

export const FIND_LAST_CLOSED = `
  SELECT * FROM lockstep_desk.positions
   WHERE symbol = $1 AND exchange = $2 AND status = 'closed' ORDER BY ended_at DESC, id LIMIT 1`

/** The open ones first, then the latest. */
export const LIST = `
  SELECT * FROM lockstep_desk.positions
   ORDER BY status IN ('opening', 'active', 'closing') DESC, created_at DESC, id LIMIT $1`

export const BEGIN_SIGNAL = `
  INSERT INTO lockstep_desk.positions (id, symbol, exchange, side, quantity, status, origin, request, valid_until)
  VALUES ($1, $2, $3, $4, $5, 'opening', 'signal', $6, clock_timestamp() + make_interval(secs => $7 / 1000.0)) RETURNING *`

export const BEGIN_ADOPTION = `
  INSERT INTO lockstep_desk.positions (id, symbol, exchange, side, quantity, status, origin, exchange_id, entry_price)
  VALUES ($1, $2, $3, $4, $5, 'opening', 'adopted', $6, $7) RETURNING *`

export const FINISH = `
  UPDATE lockstep_desk.positions SET status = 'active', exchange_id = $2, entry_price = $3, stop_price = $4
   WHERE id = $1 RETURNING *`

export const FAIL = `UPDATE lockstep_desk.positions SET status = 'failed', reason = $2, ended_at = now() WHERE id = $1`

export const START_CLOSING = `
  UPDATE lockstep_desk.positions SET status = 'closing', close_request = $2 WHERE id = $1 RETURNING *`

export const CLOSED = `
  UPDATE lockstep_desk.positions SET status = 'closed', reason = $2, ended_at = now() WHERE id = $1 RETURNING *`

export const CORRECT = 'UPDATE lockstep_desk.positions SET side = $2, quantity = $3 WHERE id = $1'

export const NEXT_STOP = `
  UPDATE lockstep_desk.positions SET stop_number = stop_number + 1, stop_price = $2 WHERE id = $1 RETURNING *`

/**
 * What the desk knows of the open positions of an exchange, and of these openings there. What was closed a moment ago counts: the exchange was asked
 * before, and may have shown it still.
 */
export const KNOWN = `
  SELECT * FROM lockstep_desk.positions
   WHERE exchange = $2 AND (status IN ('opening', 'active', 'closing')
      OR (exchange_id = ANY ($1::bigint[]) AND ended_at > now() - interval '10 seconds'))`

export const NOTE_ROUND = `
  WITH old AS (DELETE FROM lockstep_desk.position_rounds
                WHERE id < (SELECT max(id) - 10000 FROM lockstep_desk.position_rounds))
  INSERT INTO lockstep_desk.position_rounds (holder, took_ms, positions, repairs, differences, exchange)
  VALUES ($1, $2, $3, $4, $5, $6)`
