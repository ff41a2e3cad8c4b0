/** Accounts, and the transfers between them: what the bench of hot keys works on. */
export function createLedger(accounts: number, balance: number): string {
  return `
    DROP TABLE IF EXISTS transfers, accounts;
    CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0)) WITH (fillfactor = 50);
    CREATE TABLE transfers (id text NOT NULL, source int NOT NULL, target int NOT NULL, amount bigint NOT NULL);
    INSERT INTO accounts SELECT n, ${balance} FROM generate_series(0, ${accounts - 1}) AS n;
    ANALYZE accounts`
}

export const BEGIN = 'BEGIN'
export const COMMIT = 'COMMIT'
export const ROLLBACK = 'ROLLBACK'

/** As document 003 has it. */
export const LOCK_BOTH = 'SELECT id, balance FROM accounts WHERE id IN ($1, $2) ORDER BY id FOR UPDATE'
export const SET_BALANCE = 'UPDATE accounts SET balance = $2 WHERE id = $1'
export const RECORD = 'INSERT INTO transfers (id, source, target, amount) VALUES ($1, $2, $3, $4)'

/** All new balances and all transfers of a batch, in one statement. */
export const WRITE_BATCH = `
  WITH moved AS (
    UPDATE accounts SET balance = ($2::bigint[])[array_position($1::int[], id)] WHERE id = ANY($1))
  INSERT INTO transfers (id, source, target, amount)
  SELECT * FROM unnest($3::text[], $4::int[], $5::int[], $6::bigint[])`
