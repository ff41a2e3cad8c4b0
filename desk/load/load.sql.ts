/** What the load looks up when everything is quiet: the effects of one run, each with the mark of its request. */

export const TRADES = `
  SELECT price::text AS mark, id::text AS id FROM lockstep_desk.trades WHERE starts_with(portfolio, $1)`

export const STEPS = `
  SELECT coalesce(request, 'no request') AS mark, step::text AS id
    FROM lockstep_desk.instance_steps WHERE starts_with(instance, $1)`

export const TRANSFERS = `
  SELECT coalesce(request, 'no request') AS mark, id::text AS id
    FROM lockstep_desk.transfers WHERE starts_with(from_account, $1)`

export const BIDS = `
  SELECT amount::text AS mark, id::text AS id FROM lockstep_desk.bids WHERE starts_with(auction, $1)`

export const DEPOSITS = `
  SELECT amount::text AS mark, id::text AS id FROM lockstep_desk.deposits WHERE starts_with(wallet, $1)`

export const POSITIONS = `SELECT id::text AS id, status FROM lockstep_desk.positions WHERE symbol LIKE '%' || $1 || '%'`

/** What the exchange has done for symbols that it does not trade. */
export const HALTED_EXECUTIONS = `
  SELECT client_id AS id FROM lockstep_exchange.executions WHERE starts_with(symbol, 'HALT') AND symbol LIKE '%' || $1 || '%'`

export const CONSOLE_ROLE = 'load_console'

/** Sees all that the owner sees, and other sessions' statistics, as the owner does. */
export const PREPARE_CONSOLE_ROLE = `
  CREATE EXTENSION IF NOT EXISTS pg_stat_statements;
  DROP ROLE IF EXISTS ${CONSOLE_ROLE};
  CREATE ROLE ${CONSOLE_ROLE} LOGIN SUPERUSER`

export const FORGET_STATEMENTS = 'SELECT pg_stat_statements_reset()'

export const CONSOLE_SHARE = `
  SELECT coalesce(sum(total_exec_time) FILTER (WHERE userid = '${CONSOLE_ROLE}'::regrole), 0)::float8 AS ours,
         coalesce(sum(total_exec_time), 0)::float8 AS everybody,
         coalesce(sum(calls) FILTER (WHERE userid = '${CONSOLE_ROLE}'::regrole), 0)::int AS questions
    FROM pg_stat_statements`

export const EXCHANGE_ADDRESS = 'SELECT url FROM lockstep_exchange.address'

/**
 * What is still in progress: events that are not booked yet, positions that are half open, and how often the reconciler of each exchange has
 * looked since a round: the one that has looked least counts.
 */
export const UNDER_WAY = `
  WITH exchanges AS (
    SELECT (SELECT count(*) FROM lockstep_desk.position_rounds r WHERE r.exchange = e.name AND id > $2::int) AS since,
           coalesce((SELECT differences FROM lockstep_desk.position_rounds r WHERE r.exchange = e.name
                      ORDER BY id DESC LIMIT 1), 1) AS differences
      FROM unnest($1::text[]) AS e (name))
  SELECT (SELECT count(*) FROM lockstep_desk.trades)::int - (SELECT count(*) FROM lockstep_desk.bookings)::int AS events,
         (SELECT count(*) FROM lockstep_desk.positions WHERE status IN ('opening', 'closing'))::int AS positions,
         (SELECT coalesce(max(id), 0) FROM lockstep_desk.position_rounds)::int AS round,
         (SELECT min(since)::int FROM exchanges) AS rounds,
         (SELECT max(differences)::int FROM exchanges) AS differences`

export const OPENING = `SELECT count(*)::int AS opening FROM lockstep_desk.positions WHERE symbol LIKE $1 AND status = 'opening'`

export const ROUNDS = `
  SELECT took_ms, extract(epoch FROM at) * 1000 AS ended FROM lockstep_desk.position_rounds
   WHERE at >= to_timestamp($1::float8 / 1000) ORDER BY id`

export const ANYTHING = 'SELECT 1'
