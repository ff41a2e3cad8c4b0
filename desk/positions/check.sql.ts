/** The check's view: the only place of the desk that looks into the exchange's tables. */
export interface Question {
  readonly invariant: string
  /** How many things there are to look at. */
  readonly looked: string
  /** A line of text for each violation. */
  readonly violations: string
}

const OPEN = `status IN ('opening', 'active', 'closing')`

export const QUESTIONS: readonly Question[] = [
  {
    invariant: 'no symbol has two open positions at an exchange',
    looked: `SELECT count(DISTINCT (symbol, exchange)) AS looked FROM lockstep_desk.positions`,
    violations: `
      SELECT format('%s at %s has %s open positions', symbol, exchange, count(*)) AS line
        FROM lockstep_desk.positions WHERE ${OPEN} GROUP BY symbol, exchange HAVING count(*) > 1 ORDER BY symbol`,
  },
  {
    invariant: 'nothing is left half open or half closed',
    looked: `SELECT count(*) AS looked FROM lockstep_desk.positions`,
    violations: `
      SELECT format('%s is %s since %s', symbol, status, created_at) AS line
        FROM lockstep_desk.positions WHERE status IN ('opening', 'closing') ORDER BY symbol`,
  },
  {
    invariant: 'every active position is at the exchange, as large as the desk says',
    looked: `SELECT count(*) AS looked FROM lockstep_desk.positions WHERE status = 'active'`,
    violations: `
      SELECT format('%s is %s %s at the desk and %s at the exchange', ours.symbol, ours.side, ours.quantity,
                    coalesce(theirs.net, 0)) AS line
        FROM lockstep_desk.positions ours
        LEFT JOIN lockstep_exchange.positions theirs
          ON theirs.id = ours.exchange_id AND theirs.exchange = ours.exchange AND theirs.closed_at IS NULL
       WHERE ours.status = 'active'
         AND coalesce(theirs.net, 0) <> CASE ours.side WHEN 'long' THEN ours.quantity ELSE -ours.quantity END
       ORDER BY ours.symbol`,
  },
  {
    invariant: 'every position at the exchange is known to the desk',
    looked: `SELECT count(*) AS looked FROM lockstep_exchange.positions WHERE closed_at IS NULL`,
    violations: `
      SELECT format('%s (%s) is open at the exchange, and the desk does not know', symbol, net) AS line
        FROM lockstep_exchange.positions theirs
       WHERE closed_at IS NULL AND NOT EXISTS
         (SELECT FROM lockstep_desk.positions ours
           WHERE ours.exchange_id = theirs.id AND ours.exchange = theirs.exchange AND ours.status = 'active')
       ORDER BY symbol`,
  },
  {
    invariant: 'every active position has exactly one live stop-loss',
    looked: `SELECT count(*) AS looked FROM lockstep_desk.positions WHERE status = 'active'`,
    violations: `
      SELECT format('%s has %s live stop orders', symbol, stops) AS line
        FROM lockstep_desk.positions ours
        CROSS JOIN LATERAL (SELECT count(*) AS stops FROM lockstep_exchange.orders
                             WHERE position_id = ours.exchange_id AND kind = 'stop' AND orders.status = 'live') counted
       WHERE ours.status = 'active' AND stops <> 1
       ORDER BY symbol`,
  },
  {
    invariant: 'no stop-loss outlives its position',
    looked: `SELECT count(*) AS looked FROM lockstep_exchange.orders WHERE kind = 'stop'`,
    violations: `
      SELECT format('the stop %s of %s is live, and its position is not', client_id, orders.symbol) AS line
        FROM lockstep_exchange.orders JOIN lockstep_exchange.positions ON positions.id = orders.position_id
       WHERE orders.kind = 'stop' AND orders.status = 'live' AND positions.closed_at IS NOT NULL
       ORDER BY client_id`,
  },
  {
    invariant: 'each client order id was executed once',
    looked: `SELECT count(*) AS looked FROM lockstep_exchange.executions`,
    violations: `
      SELECT format('%s was executed %s times', client_id, count(*)) AS line
        FROM lockstep_exchange.executions GROUP BY client_id HAVING count(*) > 1 ORDER BY client_id`,
  },
  {
    invariant: 'no signal was executed after its end',
    looked: `SELECT count(*) AS looked FROM lockstep_desk.positions WHERE valid_until IS NOT NULL`,
    violations: `
      SELECT format('%s was entered %s after its end', positions.symbol, executions.at - valid_until) AS line
        FROM lockstep_desk.positions JOIN lockstep_exchange.executions ON client_id = positions.id || '-entry'
       WHERE executions.at > valid_until + interval '1 second'
       ORDER BY positions.symbol`,
  },
  {
    invariant: 'every position of a signal was entered by an order of its own',
    looked: `SELECT count(*) AS looked FROM lockstep_desk.positions WHERE origin = 'signal' AND status = 'active'`,
    violations: `
      SELECT format('%s was never entered', symbol) AS line
        FROM lockstep_desk.positions
       WHERE origin = 'signal' AND status = 'active' AND NOT EXISTS
         (SELECT FROM lockstep_exchange.executions WHERE client_id = positions.id || '-entry')
       ORDER BY symbol`,
  },
]
