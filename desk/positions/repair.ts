import type { Lease } from 'pg-lockstep'
import type { OpenPosition } from '../exchange/index.ts'
import { finishClosing } from './close.ts'
import { ExchangeRefusedError } from './exchangeClient.ts'
import { NothingBegunError } from './open.ts'
import type { PositionContext } from './positionContext.ts'
import { type Market, orderIds, positionKey, type PositionRow, sideOf, signedQuantity, stopPrice } from './position.ts'
import { CLOSED, CORRECT, FIND_OPEN, NEXT_STOP, START_CLOSING } from './positions.sql.ts'

/**
 * Makes the desk's row and the exchange agree again. What made it look wrong was read without the lease, and may be old; so both
 * sides are read again under it. While another process has the lease, the repair is left to that process.
 */
export async function repair(context: PositionContext, market: Market): Promise<void> {
  const { desk, ttlMs } = context
  const { symbol } = market
  const exchange = context.exchanges[market.exchange]
  const lease = await desk.lockstep.leases.tryAcquire(positionKey(market), { ttlMs, holder: desk.processName })
  if (lease === undefined) throw new NothingBegunError()
  try {
    const find = [symbol, market.exchange]
    const row = await lease.transaction({}, async (tx) => (await tx.query<PositionRow>(FIND_OPEN, find)).rows[0])
    if (row === undefined || row.status === 'opening') return
    if (row.status === 'closing') {
      await finishClosing(context, lease, row)
      return
    }
    const held = await exchange.position(symbol, lease.signal)
    if (held === undefined || held.id !== Number(row.exchange_id)) {
      await lease.transaction({}, (tx) => tx.query(CLOSED, [row.id, 'gone at the exchange']))
      return
    }
    if (held.net !== signedQuantity(row)) {
      await lease.transaction({}, (tx) => tx.query(CORRECT, [row.id, sideOf(held), Math.abs(held.net)]))
    }
    await oneStop(context, lease, row, held)
  } finally {
    await lease.release()
  }
}

/** Who cancels faster than this is answered in the next round. */
const MOST_TRIES = 3

/** Exactly one, and ours. A new one is written down before it is placed, so that the next caller knows its id. */
async function oneStop(context: PositionContext, lease: Lease, row: PositionRow, held: OpenPosition): Promise<void> {
  const exchange = context.exchanges[row.exchange]
  let current = row
  try {
    let live = held.stops.includes(orderIds.stop(current))
    for (let tries = 0; !live && tries < MOST_TRIES; tries++) {
      const price = stopPrice(sideOf(held), held.price)
      const order = { clientId: orderIds.stop(current), kind: 'stop', symbol: row.symbol } as const
      const { status } = await exchange.place({ ...order, positionId: held.id, price }, lease.signal)
      live = status === 'live'
      // It was there, and was cancelled.
      if (!live) current = await nextStop(lease, current, price)
    }
  } catch (error) {
    if (!(error instanceof ExchangeRefusedError)) throw error
    // What cannot be guarded is not kept.
    const closing = await lease.transaction(
      {},
      async (tx) => (await tx.query<PositionRow>(START_CLOSING, [row.id, null])).rows[0] as PositionRow,
    )
    await finishClosing(context, lease, closing)
    return
  }
  for (const other of held.stops) {
    if (other !== orderIds.stop(current)) await exchange.cancel(other, lease.signal)
  }
}

function nextStop(lease: Lease, row: PositionRow, price: number): Promise<PositionRow> {
  return lease.transaction(
    {},
    async (tx) => (await tx.query<PositionRow>(NEXT_STOP, [row.id, price])).rows[0] as PositionRow,
  )
}
