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

/** The limit's first message: it begins, locks all rows of a batch in their order, and reads them. */
export function beginAndLock(ids: readonly number[]): string {
  return `BEGIN; SELECT id, balance FROM accounts WHERE id IN (${ids.join(', ')}) ORDER BY id FOR UPDATE`
}

interface Recorded {
  readonly id: string
  readonly source: number
  readonly target: number
  readonly amount: number
}

/** Its second: all new balances, all transfers, and COMMIT. */
export function writeAndCommit(balances: ReadonlyMap<number, number>, transfers: readonly Recorded[]): string {
  const changed = [...balances].map(([id, balance]) => `(${id}, ${balance}::bigint)`)
  const recorded = transfers.map(({ id, source, target, amount }) => `('${id}', ${source}, ${target}, ${amount})`)
  return `
    UPDATE accounts SET balance = changed.balance FROM (VALUES ${changed.join(', ')}) AS changed (id, balance)
     WHERE accounts.id = changed.id;
    INSERT INTO transfers (id, source, target, amount) VALUES ${recorded.join(', ')};
    COMMIT`
}
