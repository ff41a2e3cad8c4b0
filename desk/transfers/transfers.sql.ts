/** Accounts, transfers between them, and the two entries of each. */

/** Where money comes from when an account is opened: the only one that may be below zero. */
export const BANK = 'bank'

export const SCHEMA = `
  CREATE TABLE IF NOT EXISTS lockstep_desk.accounts (
    id text PRIMARY KEY,
    hot boolean NOT NULL DEFAULT false,
    balance bigint NOT NULL DEFAULT 0 CONSTRAINT never_negative CHECK (balance >= 0 OR id = '${BANK}')
  );
  INSERT INTO lockstep_desk.accounts (id) VALUES ('${BANK}') ON CONFLICT DO NOTHING;

  CREATE TABLE IF NOT EXISTS lockstep_desk.transfers (
    id uuid PRIMARY KEY,
    from_account text NOT NULL REFERENCES lockstep_desk.accounts,
    to_account text NOT NULL REFERENCES lockstep_desk.accounts,
    amount bigint NOT NULL CHECK (amount > 0),
    -- The Idempotency-Key of the request that asked for it: whatever else fails, it has one transfer at most.
    request text CONSTRAINT one_transfer_a_request UNIQUE,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
  );

  CREATE TABLE IF NOT EXISTS lockstep_desk.entries (
    -- In the order of commits, account by account: it is given out while the account's row is locked.
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    transfer uuid NOT NULL REFERENCES lockstep_desk.transfers,
    account text NOT NULL REFERENCES lockstep_desk.accounts,
    amount bigint NOT NULL
  );
  CREATE INDEX IF NOT EXISTS entries_of_account ON lockstep_desk.entries (account, place);
  CREATE INDEX IF NOT EXISTS entries_of_transfer ON lockstep_desk.entries (transfer);`

export const READ_ACCOUNT = `
  SELECT id, hot, balance::float8 AS balance FROM lockstep_desk.accounts WHERE id = $1`

export const CREATE_ACCOUNT = `
  INSERT INTO lockstep_desk.accounts (id, hot) VALUES ($1, $2)`

export const HOT_ONES = `SELECT id FROM lockstep_desk.accounts WHERE id = ANY ($1::text[]) AND hot`

export const TRANSFERS_OF_REQUESTS = `
  SELECT id, from_account AS "from", to_account AS "to", amount::float8 AS amount, request
    FROM lockstep_desk.transfers WHERE request = ANY ($1::text[])`

export const SET_BALANCES = `
  UPDATE lockstep_desk.accounts a SET balance = new.balance
    FROM unnest($1::text[], $2::bigint[]) AS new (id, balance) WHERE a.id = new.id`

export const WRITE_TRANSFERS = `
  INSERT INTO lockstep_desk.transfers (id, from_account, to_account, amount, request)
  SELECT * FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[], $5::text[])`

export const WRITE_ENTRIES = `
  INSERT INTO lockstep_desk.entries (transfer, account, amount)
  SELECT t.id, e.account, e.amount
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY AS t (id, source, target, amount, place)
   CROSS JOIN LATERAL (VALUES (t.source, -t.amount), (t.target, t.amount)) AS e (account, amount)
   ORDER BY t.place`

/** The newest entries, each with the balance after it: counted back from today's, however long the account is. */
export const STATEMENT = `
  SELECT e.transfer, e.amount::float8 AS amount, t.at,
         CASE WHEN t.from_account = $1 THEN t.to_account ELSE t.from_account END AS counterparty,
         (a.balance - coalesce(sum(e.amount) OVER (ORDER BY e.place DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0))::float8
           AS balance
    FROM lockstep_desk.accounts a
    JOIN LATERAL (SELECT * FROM lockstep_desk.entries WHERE account = a.id ORDER BY place DESC LIMIT $2) AS e ON true
    JOIN lockstep_desk.transfers t ON t.id = e.transfer
   WHERE a.id = $1
   ORDER BY e.place`

/* The checks: each gives one row, how many were looked at and what is wrong with them. */

export const NOT_ZERO = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('the entries of transfer %s are %s and sum up to %s', transfer, entries, total))
           FILTER (WHERE entries <> 2 OR total <> 0 OR largest <> amount), '{}') AS violations
    FROM (SELECT t.id AS transfer, t.amount, count(e.place) AS entries, coalesce(sum(e.amount), 0) AS total,
                 coalesce(max(e.amount), 0) AS largest
            FROM lockstep_desk.transfers t LEFT JOIN lockstep_desk.entries e ON e.transfer = t.id
           GROUP BY t.id, t.amount) AS each`

export const BALANCES_DIFFER = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s has %s, its entries sum up to %s', id, balance, total)) FILTER (WHERE balance <> total), '{}')
           AS violations
    FROM (SELECT a.id, a.balance, coalesce(sum(e.amount), 0) AS total
            FROM lockstep_desk.accounts a LEFT JOIN lockstep_desk.entries e ON e.account = a.id
           GROUP BY a.id, a.balance) AS each`

export const BOOKS_DIFFER = `
  SELECT count(*) AS looked,
         CASE WHEN coalesce(sum(balance), 0) = 0 THEN '{}'::text[]
              ELSE ARRAY[format('all balances together are %s, not 0', sum(balance))] END AS violations
    FROM lockstep_desk.accounts`

/** At any time, not only now: after each entry. */
export const BELOW_ZERO = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('%s was at %s after entry %s', account, balance, place)) FILTER (WHERE balance < 0), '{}')
           AS violations
    FROM (SELECT account, place, sum(amount) OVER (PARTITION BY account ORDER BY place) AS balance
            FROM lockstep_desk.entries WHERE account <> '${BANK}') AS each`

export const REQUEST_TWICE = `
  SELECT count(*) AS looked,
         coalesce(array_agg(format('the request %s made %s transfers', request, times)) FILTER (WHERE times > 1), '{}') AS violations
    FROM (SELECT request, count(*) AS times FROM lockstep_desk.transfers WHERE request IS NOT NULL GROUP BY request) AS each`
