/** Wallets, and the auctions in which they bid. Everything but the tables and their checks goes through Kysely. */

export const SCHEMA = `
  CREATE TABLE IF NOT EXISTS lockstep_desk.auction_wallets (
    id text PRIMARY KEY,
    available bigint NOT NULL DEFAULT 0 CONSTRAINT never_overspent CHECK (available >= 0),
    -- For bids that lead.
    reserved bigint NOT NULL DEFAULT 0 CHECK (reserved >= 0)
  );

  CREATE TABLE IF NOT EXISTS lockstep_desk.deposits (
    id uuid PRIMARY KEY,
    wallet text NOT NULL REFERENCES lockstep_desk.auction_wallets,
    amount bigint NOT NULL CHECK (amount > 0)
  );

  CREATE TABLE IF NOT EXISTS lockstep_desk.auctions (
    id text PRIMARY KEY,
    -- The least that a first bid must be.
    reserve bigint NOT NULL,
    closed boolean NOT NULL DEFAULT false,
    leading_wallet text REFERENCES lockstep_desk.auction_wallets,
    leading_amount bigint,
    CHECK ((leading_wallet IS NULL) = (leading_amount IS NULL))
  );

  CREATE TABLE IF NOT EXISTS lockstep_desk.bids (
    -- In the order of acceptance, auction by auction: it is given out under the auction's lock.
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    auction text NOT NULL REFERENCES lockstep_desk.auctions,
    wallet text NOT NULL REFERENCES lockstep_desk.auction_wallets,
    amount bigint NOT NULL
  );
  CREATE INDEX IF NOT EXISTS bids_of_auction ON lockstep_desk.bids (auction, place);`

/* The checks: each gives one row, how many were looked at and what is wrong with them. */

export const RESERVED_DIFFERS = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s has reserved %s, its leading bids are %s', id, reserved, led)) FILTER (WHERE reserved <> led), '{}')
           AS violations
    FROM (SELECT w.id, w.reserved, coalesce(sum(a.leading_amount), 0) AS led
            FROM lockstep_desk.auction_wallets w
            LEFT JOIN lockstep_desk.auctions a ON a.leading_wallet = w.id AND NOT a.closed
           GROUP BY w.id, w.reserved) AS each`

export const BIDS_FALL = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s: a bid of %s was accepted after one of %s', auction, amount, before))
           FILTER (WHERE amount <= before OR amount < reserve), '{}') AS violations
    FROM (SELECT b.auction, b.amount, a.reserve, lag(b.amount) OVER (PARTITION BY b.auction ORDER BY b.place) AS before
            FROM lockstep_desk.bids b JOIN lockstep_desk.auctions a ON a.id = b.auction) AS each`

export const LEADER_DIFFERS = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s is led by %s with %s, its last bid is %s with %s', id, leading_wallet, leading_amount, wallet, amount))
           FILTER (WHERE leading_wallet IS DISTINCT FROM wallet OR leading_amount IS DISTINCT FROM amount), '{}') AS violations
    FROM (SELECT a.id, a.leading_wallet, a.leading_amount, last.wallet, last.amount
            FROM lockstep_desk.auctions a
            LEFT JOIN LATERAL (SELECT wallet, amount FROM lockstep_desk.bids WHERE auction = a.id ORDER BY place DESC LIMIT 1) AS last
                   ON true) AS each`

export const MONEY_DIFFERS = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s has %s and has paid %s, but its deposits are %s', id, held, spent, deposited))
           FILTER (WHERE held + spent <> deposited), '{}') AS violations
    FROM (SELECT w.id, w.available + w.reserved AS held,
                 (SELECT coalesce(sum(leading_amount), 0) FROM lockstep_desk.auctions WHERE leading_wallet = w.id AND closed) AS spent,
                 (SELECT coalesce(sum(amount), 0) FROM lockstep_desk.deposits WHERE wallet = w.id) AS deposited
            FROM lockstep_desk.auction_wallets w) AS each`
