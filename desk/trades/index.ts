/**
 * Trades: events that leave in the order of the commits, each exactly once.
 *
 * **What goes wrong without.** A service commits a trade and then sends its event to a broker. It dies in between: the trade is there, and its event is
 * never sent. Or several processes send what a table says is pending, with `FOR UPDATE SKIP LOCKED`: the one that skips a locked row
 * sends trade #101 before #100, without any error, and only under load.
 *
 * **The pattern.** An outbox. The trade and its event are written in one transaction, under the lock of the portfolio. Dispatchers run
 * in every process and share the work; each portfolio is a stream with numbers that have no gap. A reader of the events moves its
 * inbox in the transaction in which it books them.
 *
 * **What is promised.** A trade has an event, and an event a trade. The log has every portfolio's events in their order, once each. The
 * holdings are the sums of the trades, a moment later. A retry with the same Idempotency-Key trades once.
 *
 * Where the events go is exchangeable: a table of the same database (localLog.ts), or a broker (brokers/index.ts).
 */
import type { System } from '../desk.ts'
import { findingsOf } from '../findings.ts'
import { publishAndRead } from './publish.ts'
import { tradeRoutes } from './routes.ts'
import {
  BOOKED_OUT_OF_ORDER,
  HOLDINGS_DIFFER,
  LOG_OUT_OF_ORDER,
  NOT_BOOKED_ONCE,
  SCHEMA,
  TRADES_OUT_OF_ORDER,
} from './trades.sql.ts'

export const trades: System = {
  name: 'trades',
  schema: SCHEMA,
  routes: tradeRoutes,
  background: publishAndRead,
  check: (pool) =>
    findingsOf(pool, {
      'every trade is booked exactly once': NOT_BOOKED_ONCE,
      'the log has the numbers of each portfolio in order': LOG_OUT_OF_ORDER,
      'events are booked in the order of their numbers': BOOKED_OUT_OF_ORDER,
      'the order of the events is that of the trades': TRADES_OUT_OF_ORDER,
      'holdings are the sums of the trades': HOLDINGS_DIFFER,
    }),
}
