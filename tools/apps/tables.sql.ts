/** The tables of the example applications. Nothing in them prevents what the applications have to prevent: no unique key, no check. */
export const TABLES = `
  CREATE TABLE accounts (id text PRIMARY KEY, balance int NOT NULL);
  CREATE TABLE transfers (id text NOT NULL, amount int NOT NULL);
  CREATE TABLE steps (instance text NOT NULL, step int NOT NULL);
  CREATE TABLE receipts (n bigserial PRIMARY KEY, account text NOT NULL, seq int NOT NULL);`

export const OPEN_ACCOUNTS = `INSERT INTO accounts SELECT unnest($1::text[]), $2::int`

/** Each row is something that must not be; one column says what. */
export const VIOLATIONS = `
  SELECT format('the balances are %s, not %s', sum(balance), $1::int) AS what FROM accounts HAVING sum(balance) <> $1::int
  UNION ALL SELECT format('%s has %s', id, balance) FROM accounts WHERE balance < 0
  UNION ALL SELECT format('transfer %s was made %s times', id, count(*)) FROM transfers GROUP BY id HAVING count(*) > 1
  UNION ALL SELECT format('%s made step %s %s times', instance, step, count(*)) FROM steps GROUP BY instance, step HAVING count(*) > 1
  UNION ALL SELECT format('%s left out a step: %s of %s', instance, count(*), max(step)) FROM steps GROUP BY instance
    HAVING count(*) <> max(step)
  UNION ALL SELECT format('receipt %s of %s came in place %s', seq, account, place) FROM (
    SELECT account, seq, row_number() OVER (PARTITION BY account ORDER BY min(n)) AS place FROM receipts GROUP BY account, seq
  ) AS first WHERE seq <> place`

/** How many transfers were made, and for how many of them there is a receipt. */
export const PROGRESS = `
  SELECT (SELECT count(*) FROM transfers)::int AS transfers, (SELECT count(*) FROM steps)::int AS steps,
         (SELECT count(*) FROM (SELECT DISTINCT account, seq FROM receipts) AS distinct_receipts)::int AS receipts`

/** One that was answered as made, and is not there. */
export const MISSING = `
  SELECT id FROM unnest($1::text[]) AS answered (id) WHERE NOT EXISTS (SELECT FROM transfers WHERE transfers.id = answered.id)`

/** How many of these transfers were made. */
export const MADE = 'SELECT count(DISTINCT id)::int AS made FROM transfers WHERE id = ANY($1::text[])'
