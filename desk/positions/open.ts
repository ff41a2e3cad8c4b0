import { randomUUID } from 'node:crypto'
import type { OnceResult, Transaction } from 'pg-lockstep'
import type { OpenPosition } from '../exchange/index.ts'
import { ProblemError } from '../http/problem.ts'
import { ExchangeRefusedError } from './exchangeClient.ts'
import type { PositionContext } from './positionContext.ts'
import { orderIds, positionKey, type PositionRow, sideOf, signedQuantity, type Signal, stopPrice } from './position.ts'
import { BEGIN_ADOPTION, BEGIN_SIGNAL, FAIL, FIND_OPEN, FINISH } from './positions.sql.ts'

/** What the exchange has made of it. */
interface Opened {
  readonly exchangeId: number
  readonly entryPrice: number
  readonly stopPrice: number
}

/** The signal's way: of all that come at once, in all processes, one opens the position, and the others get what it opened. */
export function openPosition(
  context: PositionContext,
  signal: Signal,
  waitMs: number,
): Promise<OnceResult<PositionRow>> {
  return open(context, signal.symbol, waitMs, async (tx) => {
    const values = [randomUUID(), signal.symbol, signal.side, signal.quantity]
    return (await tx.query<PositionRow>(BEGIN_SIGNAL, values)).rows[0] as PositionRow
  })
}

/**
 * The reconciler's way to what it found at the exchange and not at the desk. It is the same way: where a creation was begun and
 * nobody is at it any more, that one is brought to its end instead.
 */
export function adoptPosition(context: PositionContext, found: OpenPosition): Promise<OnceResult<PositionRow>> {
  return open(context, found.symbol, 0, async (tx) => {
    const values = [randomUUID(), found.symbol, sideOf(found), Math.abs(found.net), found.id, found.price]
    return (await tx.query<PositionRow>(BEGIN_ADOPTION, values)).rows[0] as PositionRow
  })
}

/** Brings a creation to its end that nobody is at any more. */
export function takeOver(context: PositionContext, { symbol }: PositionRow): Promise<OnceResult<PositionRow>> {
  return open(context, symbol, 0, () => {
    throw new NothingBegunError()
  })
}

/** It was brought to its end by somebody else meanwhile. */
export class NothingBegunError extends Error {}

function open(
  { desk, exchange, ttlMs }: PositionContext,
  symbol: string,
  waitMs: number,
  begin: (tx: Transaction) => Promise<PositionRow>,
): Promise<OnceResult<PositionRow>> {
  return desk.lockstep.onceExternal<PositionRow, PositionRow, Opened>(positionKey(symbol), {
    ttlMs,
    waitMs,
    holder: desk.processName,
    find: async (tx) => {
      const [row] = (await tx.query<PositionRow>(FIND_OPEN, [symbol])).rows
      if (row?.status === 'closing') throw isClosing(symbol)
      if (row === undefined) return undefined
      return row.status === 'opening' ? { pending: row } : { done: row }
    },
    begin,
    async act(row, { signal }) {
      const entry = row.origin === 'signal' ? await enter(row, signal) : await lookAgain(row, signal)
      const price = stopPrice(row.side, entry.price)
      await guard(row, entry.id, price, signal)
      return { exchangeId: entry.id, entryPrice: entry.price, stopPrice: price }
    },
    finish: async (tx, { id }, { exchangeId, entryPrice, stopPrice: price }) =>
      (await tx.query<PositionRow>(FINISH, [id, exchangeId, entryPrice, price])).rows[0] as PositionRow,
    // Only where it is certain that nothing is left at the exchange. Without an answer, the beginning stays for the next.
    abandon: async (tx, { id }, error) => {
      if (error instanceof ExchangeRefusedError) await tx.query(FAIL, [id, error.reason])
    },
  })

  async function enter(row: PositionRow, signal: AbortSignal): Promise<{ id: number; price: number }> {
    const order = { clientId: orderIds.entry(row), kind: 'market', symbol, change: signedQuantity(row) } as const
    const { positionId, price } = await exchange.place(order, signal)
    // It was set against something that a person had traded the other way: there is nothing left to guard.
    if (positionId === null) throw new ExchangeRefusedError('came-to-nothing')
    return { id: positionId, price }
  }

  async function lookAgain(row: PositionRow, signal: AbortSignal): Promise<{ id: number; price: number }> {
    const held = await exchange.position(symbol, signal)
    if (held === undefined || held.id !== Number(row.exchange_id)) throw new ExchangeRefusedError('no-position')
    return held
  }

  async function guard(row: PositionRow, positionId: number, price: number, signal: AbortSignal): Promise<void> {
    try {
      await exchange.place({ clientId: orderIds.stop(row), kind: 'stop', symbol, positionId, price }, signal)
    } catch (error) {
      // What cannot be guarded is not kept.
      if (error instanceof ExchangeRefusedError) await getOut(row, positionId, signal)
      throw error
    }
  }

  async function getOut(row: PositionRow, positionId: number, signal: AbortSignal): Promise<void> {
    try {
      await exchange.place({ clientId: orderIds.close(row), kind: 'close', symbol, positionId }, signal)
    } catch (error) {
      // Refused: it is gone already, which is what was wanted.
      if (!(error instanceof ExchangeRefusedError)) throw error
    }
  }
}

function isClosing(symbol: string): ProblemError {
  return new ProblemError('closing', `Ask for ${symbol} again in a moment.`, {
    retryAfterSeconds: 1,
  })
}
