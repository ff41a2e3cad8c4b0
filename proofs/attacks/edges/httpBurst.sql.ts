/** Accounts, and a row for each transfer that was made. */
export const CREATE = `
  CREATE TABLE IF NOT EXISTS burst_accounts (id integer PRIMARY KEY, balance integer NOT NULL);
  CREATE TABLE IF NOT EXISTS burst_transfers (request text NOT NULL);
  CREATE TABLE IF NOT EXISTS burst_naive (request text PRIMARY KEY)`

export function reset(accounts: number): string {
  return `
    TRUNCATE burst_accounts, burst_transfers, burst_naive;
    INSERT INTO burst_accounts SELECT id, 1000 FROM generate_series(1, ${accounts}) id`
}

export const MOVE = 'UPDATE burst_accounts SET balance = balance + $1::integer WHERE id = $2::integer'
export const BOOK = 'INSERT INTO burst_transfers VALUES ($1::text)'
/** What a transfer takes: so much longer than a second for all of them, through the connections that there are. */
export const TAKE_TIME = 'SELECT pg_sleep($1::double precision)'

export const TRANSFERS = 'SELECT request, count(*)::integer AS times FROM burst_transfers GROUP BY request'
export const TOTAL = 'SELECT sum(balance)::integer AS total FROM burst_accounts'

/** The naive control: a key that is held while the handler works on another connection. */
export const NAIVE_KEY = 'INSERT INTO burst_naive VALUES ($1::text)'
