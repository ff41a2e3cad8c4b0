/** A few accounts; each transaction that committed has added one to one of them. */
export const CREATE = `
  DROP TABLE IF EXISTS account;
  CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL);
  INSERT INTO account SELECT id, 0 FROM generate_series(1, 100) id`

export const READ = 'SELECT balance FROM account WHERE id = $1'
export const WRITE = 'UPDATE account SET balance = $2 WHERE id = $1'
export const SUM = 'SELECT sum(balance)::int AS sum FROM account'
export const NOISE = 'SELECT 1'
