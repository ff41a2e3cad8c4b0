/** Trades, the log they are published to, and what its reader makes of them. */

export const SCHEMA = `
  CREATE TABLE IF NOT EXISTS lockstep_desk.trades (
    -- In the order of commits, portfolio by portfolio: it is given out under the portfolio's lock.
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    portfolio text NOT NULL,
    symbol text NOT NULL,
    side text NOT NULL CHECK (side IN ('buy', 'sell')),
    quantity bigint NOT NULL CHECK (quantity > 0),
    price bigint NOT NULL CHECK (price > 0),
    at timestamptz NOT NULL DEFAULT clock_timestamp()
  );
  CREATE INDEX IF NOT EXISTS trades_of_portfolio ON lockstep_desk.trades (portfolio, place);

  CREATE TABLE IF NOT EXISTS lockstep_desk.trade_log (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    portfolio text NOT NULL,
    seq bigint NOT NULL,
    event uuid NOT NULL,
    tombstone text,
    payload jsonb,
    UNIQUE (portfolio, seq)
  );

  CREATE TABLE IF NOT EXISTS lockstep_desk.trade_log_readers (reader text PRIMARY KEY, position bigint NOT NULL);

  CREATE TABLE IF NOT EXISTS lockstep_desk.holdings (
    portfolio text NOT NULL,
    symbol text NOT NULL,
    quantity bigint NOT NULL,
    -- What was paid for it, less what it was sold for.
    paid bigint NOT NULL,
    PRIMARY KEY (portfolio, symbol)
  );

  -- Which event was booked, in the order of booking. Nothing is unique here: a second booking is to be seen.
  CREATE TABLE IF NOT EXISTS lockstep_desk.bookings (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    portfolio text NOT NULL,
    seq bigint NOT NULL,
    trade uuid
  );
  ALTER TABLE lockstep_desk.bookings ADD COLUMN IF NOT EXISTS at timestamptz NOT NULL DEFAULT clock_timestamp();
  CREATE INDEX IF NOT EXISTS bookings_of_portfolio ON lockstep_desk.bookings (portfolio, place);
  CREATE INDEX IF NOT EXISTS bookings_of_trade ON lockstep_desk.bookings (trade);`

export const INSERT_TRADE = `
  INSERT INTO lockstep_desk.trades (id, portfolio, symbol, side, quantity, price) VALUES ($1, $2, $3, $4, $5, $6)`

/** The number of its event is known as soon as the event has arrived. */
export const TRADES_OF = `
  SELECT id, portfolio, symbol, side, quantity::float8 AS quantity, price::float8 AS price, at,
         (SELECT min(seq)::float8 FROM lockstep_desk.bookings WHERE trade = newest.id) AS seq
    FROM (SELECT * FROM lockstep_desk.trades WHERE portfolio = $1 ORDER BY place DESC LIMIT 1000) AS newest
   ORDER BY place`

/** In the order of their arrival, whichever broker is between: what is out of order is to be seen here. */
export const LOG_OF = `
  SELECT newest.place::float8 AS place, seq::float8 AS seq, newest.at, trade, symbol, side, quantity::float8 AS quantity, price::float8 AS price
    FROM (SELECT * FROM lockstep_desk.bookings WHERE portfolio = $1 ORDER BY place DESC LIMIT 1000) AS newest
    LEFT JOIN lockstep_desk.trades ON trades.id = newest.trade
   ORDER BY newest.place`

export const PORTFOLIOS = `
  SELECT portfolio, count(*)::float8 AS trades,
         (SELECT count(*)::float8 FROM lockstep_desk.bookings WHERE portfolio = trades.portfolio) AS published
    FROM lockstep_desk.trades GROUP BY portfolio ORDER BY max(place) DESC LIMIT 200`

export const HOLDINGS_OF = `
  SELECT symbol, quantity::float8 AS quantity, paid::float8 AS paid
    FROM lockstep_desk.holdings WHERE portfolio = $1 ORDER BY symbol`

/** What a dispatcher sends twice is there already. */
export const APPEND = `
  INSERT INTO lockstep_desk.trade_log (portfolio, seq, event, tombstone, payload)
  SELECT portfolio, seq, event, tombstone, payload
    FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::jsonb[])
         WITH ORDINALITY AS given (portfolio, seq, event, tombstone, payload, place)
   ORDER BY place
      ON CONFLICT (portfolio, seq) DO NOTHING`

export const POSITION_OF = `SELECT position::float8 AS position FROM lockstep_desk.trade_log_readers WHERE reader = $1`

export const READ_LOG = `
  SELECT position::float8 AS position, portfolio, seq::float8 AS seq, event, tombstone, payload
    FROM lockstep_desk.trade_log WHERE position > $1 ORDER BY position LIMIT $2`

export const ACKNOWLEDGE = `
  INSERT INTO lockstep_desk.trade_log_readers AS r (reader, position) VALUES ($1, $2)
      ON CONFLICT (reader) DO UPDATE SET position = greatest(r.position, excluded.position)`

/** Sums first: one statement cannot change a row twice. */
export const BOOK = `
  INSERT INTO lockstep_desk.holdings AS h (portfolio, symbol, quantity, paid)
  SELECT portfolio, symbol, sum(quantity), sum(quantity * price)
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[]) AS given (portfolio, symbol, quantity, price)
   GROUP BY portfolio, symbol ORDER BY portfolio, symbol
      ON CONFLICT (portfolio, symbol) DO UPDATE
     SET quantity = h.quantity + excluded.quantity, paid = h.paid + excluded.paid`

export const NOTE_BOOKINGS = `
  INSERT INTO lockstep_desk.bookings (portfolio, seq, trade)
  SELECT portfolio, seq, trade
    FROM unnest($1::text[], $2::bigint[], $3::uuid[]) WITH ORDINALITY AS given (portfolio, seq, trade, place)
   ORDER BY place`

/* The checks: each gives one row, how many were looked at and what is wrong with them. */

export const NOT_BOOKED_ONCE = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('trade %s of %s was booked %s times', id, portfolio, times)) FILTER (WHERE times <> 1), '{}')
           AS violations
    FROM (SELECT t.id, t.portfolio, count(b.place) AS times
            FROM lockstep_desk.trades t LEFT JOIN lockstep_desk.bookings b ON b.trade = t.id
           GROUP BY t.id, t.portfolio
           UNION ALL
          SELECT b.trade, b.portfolio, 0 FROM lockstep_desk.bookings b
           WHERE b.trade IS NOT NULL AND NOT EXISTS (SELECT 1 FROM lockstep_desk.trades t WHERE t.id = b.trade)) AS each`

export const LOG_OUT_OF_ORDER = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s: #%s stands where #%s should', portfolio, seq, expected)) FILTER (WHERE seq <> expected), '{}')
           AS violations
    FROM (SELECT portfolio, seq, row_number() OVER (PARTITION BY portfolio ORDER BY position) AS expected
            FROM lockstep_desk.trade_log) AS each`

export const BOOKED_OUT_OF_ORDER = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s: #%s was booked where #%s should', portfolio, seq, expected)) FILTER (WHERE seq <> expected), '{}')
           AS violations
    FROM (SELECT portfolio, seq, row_number() OVER (PARTITION BY portfolio ORDER BY place) AS expected
            FROM lockstep_desk.bookings) AS each`

export const TRADES_OUT_OF_ORDER = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s: trade %s has the number %s, and comes behind a larger one', portfolio, id, seq))
           FILTER (WHERE seq < before), '{}') AS violations
    FROM (SELECT t.portfolio, t.id, b.seq, lag(b.seq) OVER (PARTITION BY t.portfolio ORDER BY t.place) AS before
            FROM lockstep_desk.trades t JOIN lockstep_desk.bookings b ON b.trade = t.id) AS each`

export const HOLDINGS_DIFFER = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s of %s: %s held, %s traded', symbol, portfolio, held, traded)) FILTER (WHERE held <> traded OR
           held_paid <> traded_paid), '{}') AS violations
    FROM (SELECT portfolio, symbol, coalesce(h.quantity, 0) AS held, coalesce(t.quantity, 0) AS traded,
                 coalesce(h.paid, 0) AS held_paid, coalesce(t.paid, 0) AS traded_paid
            FROM lockstep_desk.holdings h
            FULL JOIN (SELECT portfolio, symbol, sum(signed) AS quantity, sum(signed * price) AS paid
                         FROM (SELECT *, CASE side WHEN 'buy' THEN quantity ELSE -quantity END AS signed
                                 FROM lockstep_desk.trades) AS signed_trades
                        GROUP BY portfolio, symbol) AS t USING (portfolio, symbol)) AS each`
