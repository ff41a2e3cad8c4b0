import type { InboxEvent, Transaction } from 'pg-lockstep'
import type { Desk, DeskEvents } from '../desk.ts'
import { BOOK, NOTE_BOOKINGS } from './trades.sql.ts'

type Trade = DeskEvents['trades']

/** An event of the topic `trades`, wherever it was read. */
export interface TradeEvent extends InboxEvent {
  readonly payload?: Trade
}

/** The name under which the inbox remembers how far the holdings are. */
export const READER = 'desk-holdings'

/**
 * Applies events to the holdings: those that the inbox has not seen yet, together with the inbox's own step. What comes again has no
 * effect; what would leave a gap is refused.
 */
export async function book(lockstep: Desk['lockstep'], events: readonly TradeEvent[]): Promise<void> {
  const reader = lockstep.inbox.consumer(READER)
  await lockstep.transaction({}, async (tx) => {
    const verdicts = await reader.acceptMany(tx, events)
    const trouble = verdicts.find((verdict) => verdict instanceof Error)
    if (trouble !== undefined) throw trouble
    await apply(
      tx,
      events.filter((_, place) => verdicts[place] === 'first'),
    )
  })
}

async function apply(tx: Pick<Transaction, 'query'>, events: readonly TradeEvent[]): Promise<void> {
  if (events.length === 0) return
  const trades = events.flatMap(({ payload }) => (payload === undefined ? [] : [payload]))
  await tx.query(BOOK, [
    trades.map(({ portfolio }) => portfolio),
    trades.map(({ symbol }) => symbol),
    trades.map(({ side, quantity }) => (side === 'buy' ? quantity : -quantity)),
    trades.map(({ price }) => price),
  ])
  await tx.query(NOTE_BOOKINGS, [
    events.map((event) => event.key),
    events.map(({ seq }) => seq),
    events.map(({ payload }) => payload?.tradeId ?? null),
  ])
}
