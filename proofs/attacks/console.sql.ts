/** What the load works on. */
export const CREATE_ACCOUNTS = `
  CREATE EXTENSION IF NOT EXISTS pg_stat_statements;
  CREATE TABLE accounts (id int PRIMARY KEY, balance bigint NOT NULL DEFAULT 0);
  INSERT INTO accounts SELECT generate_series(0, 9999);
  CREATE ROLE console LOGIN SUPERUSER`

export const DEPOSIT = 'UPDATE accounts SET balance = balance + 1 WHERE id = $1'

/** Events from $1 to $2, of a thousand streams. */
export const ADD_EVENTS = `
  SELECT lockstep.outbox_append_many(array_agg('history'::text), array_agg('stream-' || n % 1000), array_agg('{"text":"something that was ordered"}'::text),
           array_agg(NULL::bytea), array_agg('{"trace-id":"' || n || '"}'))
    FROM generate_series($1::bigint, $2::bigint) AS n`

/** As many services hold them, all for an hour. */
export const ADD_LEASES = `
  INSERT INTO lockstep.leases (name, slot, permits, token, fence, holder, metadata, acquired_at, expires_at)
  SELECT 'Session:' || n, 0, 1, gen_random_uuid(), nextval('lockstep.fences'), 'service-' || n % 100, jsonb_build_object('request', n), now(),
         now() + interval '1 hour'
    FROM generate_series(1, $1::int) AS n`

export const FORGET_STATEMENTS = 'SELECT pg_stat_statements_reset()'

/** The console has a role of its own, which separates its statements from all others. */
export const TIME_BY_ROLE = `
  SELECT coalesce(sum(total_exec_time) FILTER (WHERE userid = 'console'::regrole), 0)::float8 AS ours,
         coalesce(sum(total_exec_time), 0)::float8 AS everybody,
         coalesce(sum(calls) FILTER (WHERE userid = 'console'::regrole), 0)::int AS questions,
         coalesce(sum(calls), 0)::int AS statements
    FROM pg_stat_statements`
