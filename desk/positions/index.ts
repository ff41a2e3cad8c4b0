/**
 * Positions: a signal and a reconciler that open the same position.
 *
 * **What goes wrong without.** A signal writes a row, places the entry order, then the stop-loss: 2.7 s. A reconciler looks every 2 s at what
 * the exchange has and the desk has not, and writes that down. Between entry and end it sees a position that it takes for an orphan:
 * two rows, two stop-losses. To hold a lock in a transaction all that time costs a connection for each signal, and a crash in between leaves
 * a position at the exchange without a stop-loss.
 *
 * **How.** One lease for each symbol and exchange (`Position:BTC:north`): signal, closing and reconciler exclude each other, and no connection is held while
 * the exchange is asked. A signal is `lockstep.onceExternal()`: the row first (`opening`), with an id from which the ids of its orders
 * follow; then entry and stop-loss outside; then `active`. States: opening → active → closing → closed; opening → failed.
 *
 * **Failures.** A creator that dies leaves its row. Its lease ends after 5 s, and the next caller, another signal or the reconciler, takes it
 * over with the same order ids: what was placed is not placed again. An answer that is lost is asked for again, with the same id. The
 * exchange refuses the entry: the position failed, and nothing is left. It refuses the stop-loss: the position is closed again. It gives no
 * answer at all: the row stays `opening`, because the outcome is unknown. A signal has a maximum age: its entry order is valid for 10 s, and the exchange
 * refuses it afterwards. So a caller that takes the row over learns which of the two it is: executed in time, then it gets its stop-loss; or not,
 * then it failed and nothing is left. What was answered 503 because the exchange was away is not executed later.
 *
 * **Requests that come twice** carry their Idempotency-Key to the row that they opened or closed: after a crash, a repeated signal does
 * not open a second position, and a repeated closing does not close the next one.
 *
 * **The reconciler** of each exchange runs in one process at a time (`lockstep.leader`). What it sees without the lease may be old, so it decides on what it reads
 * again under the lease of the symbol. It adopts orphans and manual trades, takes over what was begun, sets a stop-loss that is missing,
 * cancels one too many, and closes at the desk what is gone at the exchange.
 *
 * **The promise.** Never two open positions of a symbol at one exchange; never two executions of one order. A position is without a stop-loss only while its
 * creator is alive and at it, or until the reconciler has seen it: lease, round and stop-loss, 10 s in all.
 */
import { key } from 'pg-lockstep'
import type { System } from '../desk.ts'
import { type ExchangeName, EXCHANGES } from '../exchange/index.ts'
import { checkPositions } from './check.ts'
import { openPositionContext, type PositionOptions } from './positionContext.ts'
import { SCHEMA } from './positions.sql.ts'
import { Reconciler } from './reconcile.ts'
import { positionRoutes } from './routes.ts'

const DEFAULTS: PositionOptions = { ttlMs: 5000, everyMs: 2000, maxAgeMs: 10_000 }

/** The system, with other times: for tests that do not want to wait. */
export function createPositions(options: Partial<PositionOptions> = {}): System {
  const given = { ...DEFAULTS, ...options }
  return {
    name: 'positions',
    schema: SCHEMA,
    routes: (desk) => positionRoutes(openPositionContext(desk, given)),
    async background(desk, signal) {
      const lead = { signal, ttlMs: given.ttlMs, holder: desk.processName }
      const context = openPositionContext(desk, given)
      const lookAfter = (exchange: ExchangeName): Promise<void> =>
        desk.lockstep.leader(key`Leader:positions:${exchange}`, lead, (lease) =>
          new Reconciler(context, exchange).run(AbortSignal.any([lease.signal, signal])),
        )
      await Promise.all(EXCHANGES.map(lookAfter))
    },
    check: checkPositions,
  }
}

export const positions = createPositions()
