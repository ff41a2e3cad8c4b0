/** What the load works on. */
export const CREATE_ACCOUNTS = `
  CREATE EXTENSION IF NOT EXISTS pg_stat_statements;
  CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0);
  INSERT INTO accounts SELECT generate_series(0, 9999);
  CREATE ROLE console LOGIN SUPERUSER`

export const DEPOSIT = 'UPDATE accounts SET balance = balance + 1 WHERE id = $1'

export const FORGET_STATEMENTS = 'SELECT pg_stat_statements_reset()'

/** The console has a role of its own, which separates its statements from all others. */
export const TIME_BY_ROLE = `
  SELECT coalesce(sum(total_exec_time) FILTER (WHERE userid = 'console'::regrole), 0)::float8 AS ours,
         coalesce(sum(total_exec_time), 0)::float8 AS everybody,
         coalesce(sum(calls) FILTER (WHERE userid = 'console'::regrole), 0)::int AS questions,
         coalesce(sum(calls), 0)::int AS statements
    FROM pg_stat_statements`
