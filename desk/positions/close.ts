import type { Lease } from 'pg-lockstep'
import { notFound, ProblemError } from '../http/problem.ts'
import { ExchangeRefusedError } from './exchangeClient.ts'
import type { PositionContext } from './positionContext.ts'
import { type Market, orderIds, positionKey, type PositionRow } from './position.ts'
import { CLOSED, FIND_CLOSED_BY, FIND_LAST_CLOSED, FIND_OPEN, START_CLOSING } from './positions.sql.ts'

/**
 * Closes the open position of a symbol at an exchange. Called again, it returns the one that was closed last. `request` names the request that
 * asks: one that has closed a position already does not close the next one.
 */
export async function closePosition(
  context: PositionContext,
  market: Market,
  waitMs: number,
  request?: string,
): Promise<PositionRow> {
  const { desk, ttlMs } = context
  const { symbol, exchange } = market
  return desk.lockstep.lease(positionKey(market), { ttlMs, waitMs, holder: desk.processName }, async (lease) => {
    const row = await lease.transaction({}, async (tx) => {
      const find = async (text: string, more: readonly string[] = []): Promise<PositionRow | undefined> =>
        (await tx.query<PositionRow>(text, [symbol, exchange, ...more])).rows[0]
      const before = request === undefined ? undefined : await find(FIND_CLOSED_BY, [request])
      if (before !== undefined) return before
      const open = await find(FIND_OPEN)
      if (open === undefined) return find(FIND_LAST_CLOSED)
      if (open.status !== 'active') return open
      return (await tx.query<PositionRow>(START_CLOSING, [open.id, request ?? null])).rows[0]
    })
    if (row === undefined) throw notFound('position', `${symbol} at ${exchange}`)
    if (row.status === 'opening') throw isOpening(symbol)
    return row.status === 'closed' ? row : finishClosing(context, lease, row)
  })
}

/** Completes closing, also for a caller that finds it half done: the order has the same id. */
export async function finishClosing(
  { exchanges }: PositionContext,
  lease: Lease,
  row: PositionRow,
): Promise<PositionRow> {
  const exchange = exchanges[row.exchange]
  const order = { clientId: orderIds.close(row), kind: 'close', symbol: row.symbol } as const
  let reason = 'closed'
  try {
    await exchange.place({ ...order, positionId: Number(row.exchange_id) }, lease.signal)
  } catch (error) {
    // Refused: a person, or its stop, was quicker.
    if (!(error instanceof ExchangeRefusedError)) throw error
    reason = 'was gone already'
  }
  return lease.transaction(
    {},
    async (tx) => (await tx.query<PositionRow>(CLOSED, [row.id, reason])).rows[0] as PositionRow,
  )
}

function isOpening(symbol: string): ProblemError {
  const detail = `The position of ${symbol} was begun and is not open yet. Try again in a moment.`
  return new ProblemError('opening', detail, { retryAfterSeconds: 1 })
}
