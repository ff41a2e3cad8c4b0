import type { Lease } from 'pg-lockstep'
import { notFound, ProblemError } from '../http/problem.ts'
import { ExchangeRefusedError } from './exchangeClient.ts'
import type { PositionContext } from './positionContext.ts'
import { orderIds, positionKey, type PositionRow } from './position.ts'
import { CLOSED, FIND_LAST_CLOSED, FIND_OPEN, START_CLOSING } from './positions.sql.ts'

/** Closes the open position of a symbol. Asked again, it tells of the one that was closed last. */
export async function closePosition(context: PositionContext, symbol: string, waitMs: number): Promise<PositionRow> {
  const { desk, ttlMs } = context
  return desk.lockstep.lease(positionKey(symbol), { ttlMs, waitMs, holder: desk.processName }, async (lease) => {
    const row = await lease.transaction({}, async (tx) => {
      const [open] = (await tx.query<PositionRow>(FIND_OPEN, [symbol])).rows
      if (open === undefined) return (await tx.query<PositionRow>(FIND_LAST_CLOSED, [symbol])).rows[0]
      if (open.status !== 'active') return open
      return (await tx.query<PositionRow>(START_CLOSING, [open.id])).rows[0]
    })
    if (row === undefined) throw notFound('position', symbol)
    if (row.status === 'opening') throw isOpening(symbol)
    return row.status === 'closed' ? row : finishClosing(context, lease, row)
  })
}

/** The rest of it, also for whoever finds it half done: the order has the same id. */
export async function finishClosing(
  { exchange }: PositionContext,
  lease: Lease,
  row: PositionRow,
): Promise<PositionRow> {
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
