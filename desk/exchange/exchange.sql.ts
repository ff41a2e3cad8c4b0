import { DEFAULT_EXCHANGE } from './names.ts'

/**
 * The exchange's own tables. Each effect is one call of a function, so it is there whole or not at all, and one symbol's effects come
 * one after the other: it plays a foreign system, so it does not use Lockstep.
 */
export const SCHEMA = `
  CREATE SCHEMA IF NOT EXISTS lockstep_exchange;
  CREATE TABLE IF NOT EXISTS lockstep_exchange.markets (exchange text, symbol text, PRIMARY KEY (exchange, symbol));

  -- One row for each opening of a position: one that is closed and opened again has another row.
  CREATE TABLE IF NOT EXISTS lockstep_exchange.positions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    symbol text NOT NULL,
    net bigint NOT NULL,
    price bigint NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at timestamptz);
  ALTER TABLE lockstep_exchange.positions ADD COLUMN IF NOT EXISTS exchange text NOT NULL DEFAULT '${DEFAULT_EXCHANGE}';
  DROP INDEX IF EXISTS lockstep_exchange.one_open_position;
  CREATE UNIQUE INDEX IF NOT EXISTS one_open_position_per_exchange ON lockstep_exchange.positions (exchange, symbol)
    WHERE closed_at IS NULL;

  -- The client's id is the key: the same id is the same order, also where it was refused.
  CREATE TABLE IF NOT EXISTS lockstep_exchange.orders (
    client_id text PRIMARY KEY,
    kind text NOT NULL,
    symbol text NOT NULL,
    status text NOT NULL,
    reason text,
    position_id bigint,
    quantity bigint NOT NULL,
    price bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
  ALTER TABLE lockstep_exchange.orders ADD COLUMN IF NOT EXISTS exchange text NOT NULL DEFAULT '${DEFAULT_EXCHANGE}';
  CREATE INDEX IF NOT EXISTS live_orders ON lockstep_exchange.orders (position_id) WHERE status = 'live';

  -- Every effect on a position. Nothing here keeps an id from coming twice: that is what a check looks for.
  CREATE TABLE IF NOT EXISTS lockstep_exchange.executions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    client_id text NOT NULL,
    symbol text NOT NULL,
    change bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
  CREATE INDEX IF NOT EXISTS executions_client_id ON lockstep_exchange.executions (client_id);

  -- Its address, for clients that have only the database.
  CREATE TABLE IF NOT EXISTS lockstep_exchange.address (one boolean PRIMARY KEY DEFAULT true CHECK (one), url text NOT NULL);

  -- Of a schema with one exchange.
  DROP TABLE IF EXISTS lockstep_exchange.symbols;
  DROP FUNCTION IF EXISTS lockstep_exchange.enter(text);
  DROP FUNCTION IF EXISTS lockstep_exchange.refuse(text, text, text, bigint, bigint, bigint, text);
  DROP FUNCTION IF EXISTS lockstep_exchange.trade(text, text, text, bigint, bigint, text);
  DROP FUNCTION IF EXISTS lockstep_exchange.guard_position(text, text, bigint, bigint, text);
  DROP FUNCTION IF EXISTS lockstep_exchange.close_position(text, text, bigint, bigint);

  CREATE OR REPLACE FUNCTION lockstep_exchange.enter(venue text, wanted text) RETURNS void LANGUAGE plpgsql AS $$
  BEGIN
    INSERT INTO lockstep_exchange.markets VALUES (venue, wanted) ON CONFLICT DO NOTHING;
    PERFORM 1 FROM lockstep_exchange.markets WHERE exchange = venue AND symbol = wanted FOR UPDATE;
  END $$;

  CREATE OR REPLACE FUNCTION lockstep_exchange.refuse(
    venue text, id text, order_kind text, wanted text, position_of bigint, amount bigint, at_price bigint, why text
  ) RETURNS SETOF lockstep_exchange.orders LANGUAGE sql AS $$
    INSERT INTO lockstep_exchange.orders (client_id, kind, symbol, status, reason, position_id, quantity, price, exchange)
    VALUES (id, order_kind, wanted, 'refused', why, position_of, amount, at_price, venue) RETURNING *
  $$;

  -- A change of the net quantity. A position that comes to nothing, or to the other side, ends with its stops. An order that arrives after
  -- valid_until is refused; one that was executed before stays executed.
  CREATE OR REPLACE FUNCTION lockstep_exchange.trade(
    venue text, id text, order_kind text, wanted text, change bigint, at_price bigint, why_not text, valid_until timestamptz
  ) RETURNS SETOF lockstep_exchange.orders LANGUAGE plpgsql AS $$
  DECLARE
    held lockstep_exchange.positions;
    after bigint;
    life bigint;
  BEGIN
    PERFORM lockstep_exchange.enter(venue, wanted);
    RETURN QUERY SELECT * FROM lockstep_exchange.orders WHERE client_id = id;
    IF FOUND THEN RETURN; END IF;
    IF why_not IS NULL AND valid_until < clock_timestamp() THEN why_not := 'too-late'; END IF;
    IF why_not IS NOT NULL THEN
      RETURN QUERY SELECT * FROM lockstep_exchange.refuse(venue, id, order_kind, wanted, NULL, change, at_price, why_not);
      RETURN;
    END IF;
    SELECT * INTO held FROM lockstep_exchange.positions
      WHERE exchange = venue AND symbol = wanted AND closed_at IS NULL;
    after := coalesce(held.net, 0) + change;
    life := held.id;
    IF held.id IS NOT NULL AND (after = 0 OR sign(after) <> sign(held.net)) THEN
      UPDATE lockstep_exchange.positions SET net = 0, closed_at = clock_timestamp() WHERE positions.id = held.id;
      UPDATE lockstep_exchange.orders SET status = 'cancelled' WHERE position_id = held.id AND status = 'live';
      held.id := NULL;
    ELSIF held.id IS NOT NULL THEN
      UPDATE lockstep_exchange.positions SET net = after WHERE positions.id = held.id;
    END IF;
    IF held.id IS NULL AND after <> 0 THEN
      INSERT INTO lockstep_exchange.positions (exchange, symbol, net, price) VALUES (venue, wanted, after, at_price)
        RETURNING positions.id INTO life;
    END IF;
    INSERT INTO lockstep_exchange.executions (client_id, symbol, change) VALUES (id, wanted, trade.change);
    RETURN QUERY INSERT INTO lockstep_exchange.orders (client_id, kind, symbol, status, position_id, quantity, price, exchange)
      VALUES (id, order_kind, wanted, 'filled', life, trade.change, at_price, venue) RETURNING *;
  END $$;

  -- A stop guards one opening of a position, whatever its quantity is.
  CREATE OR REPLACE FUNCTION lockstep_exchange.guard_position(
    venue text, id text, wanted text, position_of bigint, at_price bigint, why_not text
  ) RETURNS SETOF lockstep_exchange.orders LANGUAGE plpgsql AS $$
  BEGIN
    PERFORM lockstep_exchange.enter(venue, wanted);
    RETURN QUERY SELECT * FROM lockstep_exchange.orders WHERE client_id = id;
    IF FOUND THEN RETURN; END IF;
    PERFORM 1 FROM lockstep_exchange.positions
      WHERE positions.id = position_of AND exchange = venue AND symbol = wanted AND closed_at IS NULL;
    IF NOT FOUND THEN why_not := 'no-position'; END IF;
    IF why_not IS NOT NULL THEN
      RETURN QUERY SELECT * FROM lockstep_exchange.refuse(venue, id, 'stop', wanted, position_of, 0, at_price, why_not);
      RETURN;
    END IF;
    RETURN QUERY INSERT INTO lockstep_exchange.orders (client_id, kind, symbol, status, position_id, quantity, price, exchange)
      VALUES (id, 'stop', wanted, 'live', position_of, 0, at_price, venue) RETURNING *;
  END $$;

  -- Closing names the opening: a late request does not close a position that was opened since.
  CREATE OR REPLACE FUNCTION lockstep_exchange.close_position(
    venue text, id text, wanted text, position_of bigint, at_price bigint
  ) RETURNS SETOF lockstep_exchange.orders LANGUAGE plpgsql AS $$
  DECLARE
    held lockstep_exchange.positions;
  BEGIN
    PERFORM lockstep_exchange.enter(venue, wanted);
    RETURN QUERY SELECT * FROM lockstep_exchange.orders WHERE client_id = id;
    IF FOUND THEN RETURN; END IF;
    SELECT * INTO held FROM lockstep_exchange.positions
      WHERE positions.id = position_of AND exchange = venue AND symbol = wanted AND closed_at IS NULL;
    IF NOT FOUND THEN
      RETURN QUERY SELECT * FROM lockstep_exchange.refuse(venue, id, 'close', wanted, position_of, 0, at_price, 'no-position');
      RETURN;
    END IF;
    RETURN QUERY SELECT * FROM lockstep_exchange.trade(venue, id, 'close', wanted, -held.net, at_price, NULL, NULL);
  END $$`

export const TRADE = 'SELECT * FROM lockstep_exchange.trade($1, $2, $3, $4, $5, $6, $7, $8)'

export const GUARD_POSITION = 'SELECT * FROM lockstep_exchange.guard_position($1, $2, $3, $4, $5, $6)'

export const CLOSE_POSITION = 'SELECT * FROM lockstep_exchange.close_position($1, $2, $3, $4, $5)'

/** A stop that is cancelled stays known by its id. */
export const CANCEL = `
  UPDATE lockstep_exchange.orders SET status = CASE status WHEN 'live' THEN 'cancelled' ELSE status END
   WHERE exchange = $1 AND client_id = $2 RETURNING *`

/** All open positions, or that of one symbol, each with its live stops: one answer, so that the two fit together. */
export const OPEN_POSITIONS = `
  SELECT id, symbol, net, price,
         ARRAY(SELECT client_id FROM lockstep_exchange.orders
                WHERE position_id = positions.id AND kind = 'stop' AND status = 'live'
                ORDER BY at, client_id) AS stops
    FROM lockstep_exchange.positions
   WHERE closed_at IS NULL AND exchange = $1 AND ($2::text IS NULL OR symbol = $2)
   ORDER BY symbol`

export const LIVE_ORDERS = `SELECT * FROM lockstep_exchange.orders WHERE exchange = $1 AND status = 'live' ORDER BY at, client_id`

export const ONE_ORDER = 'SELECT * FROM lockstep_exchange.orders WHERE exchange = $1 AND client_id = $2'

export const TELL_ADDRESS = `
  INSERT INTO lockstep_exchange.address (url) VALUES ($1) ON CONFLICT (one) DO UPDATE SET url = EXCLUDED.url`
