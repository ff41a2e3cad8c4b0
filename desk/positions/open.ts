import { randomUUID } from 'node:crypto'
import type { OnceResult, Transaction } from 'pg-lockstep'
import type { ExchangeName, OpenPosition } from '../exchange/index.ts'
import { ProblemError } from '../http/problem.ts'
import { ExchangeRefusedError } from './exchangeClient.ts'
import type { PositionContext } from './positionContext.ts'
import {
  type Market,
  orderIds,
  positionKey,
  type PositionRow,
  sideOf,
  signedQuantity,
  type Signal,
  stopPrice,
} from './position.ts'
import { BEGIN_ADOPTION, BEGIN_SIGNAL, FAIL, FIND_OF_REQUEST, FIND_OPEN, FINISH } from './positions.sql.ts'

/** What the exchange has made of it. */
interface Opened {
  readonly exchangeId: number
  readonly entryPrice: number
  readonly stopPrice: number
}

/** How the exchange refuses an order that came after its end. */
const TOO_LATE = 'too-late'

/** Its entry was not executed in time, and never will be. */
export class SignalExpiredError extends ExchangeRefusedError {
  readonly id: string

  constructor(id: string) {
    super(TOO_LATE)
    this.id = id
  }
}

/** So often a signal finds one that was begun before it and has expired, before it gives up. */
const MOST_EXPIRED = 3

/** The signal's way: of all that come at once, in all processes, one opens the position, and the others get what it opened. */
export async function openPosition(
  context: PositionContext,
  signal: Signal,
  waitMs: number,
): Promise<OnceResult<PositionRow>> {
  const { symbol, exchange, side, quantity, request } = signal
  for (let expired = 1; ; expired++) {
    const id = randomUUID()
    try {
      return await open(context, signal, waitMs, async (tx) => {
        const values = [id, symbol, exchange, side, quantity, request ?? null, context.maxAgeMs]
        return (await tx.query<PositionRow>(BEGIN_SIGNAL, values)).rows[0] as PositionRow
      })
    } catch (error) {
      // That was an earlier signal, of which nothing is left. This one has its own time.
      const ofAnother = error instanceof SignalExpiredError && error.id !== id
      if (!ofAnother || expired === MOST_EXPIRED) throw error
    }
  }
}

/**
 * The reconciler's way to what it found at the exchange and not at the desk. It is the same way: where a creation was begun and
 * its creator is gone, that one is completed instead.
 */
export function adoptPosition(
  context: PositionContext,
  exchange: ExchangeName,
  found: OpenPosition,
): Promise<OnceResult<PositionRow>> {
  const { symbol } = found
  return open(context, { symbol, exchange }, 0, async (tx) => {
    const values = [randomUUID(), symbol, exchange, sideOf(found), Math.abs(found.net), found.id, found.price]
    return (await tx.query<PositionRow>(BEGIN_ADOPTION, values)).rows[0] as PositionRow
  })
}

/** Completes a creation whose creator is gone. */
export function takeOver(
  context: PositionContext,
  { symbol, exchange }: PositionRow,
): Promise<OnceResult<PositionRow>> {
  return open(context, { symbol, exchange }, 0, () => {
    throw new NothingBegunError()
  })
}

/** Another process has completed it meanwhile. */
export class NothingBegunError extends Error {}

function open(
  { desk, exchanges, ttlMs }: PositionContext,
  market: Market & Pick<Signal, 'request'>,
  waitMs: number,
  begin: (tx: Transaction) => Promise<PositionRow>,
): Promise<OnceResult<PositionRow>> {
  const { symbol, request } = market
  const exchange = exchanges[market.exchange]
  return desk.lockstep.onceExternal<PositionRow, PositionRow, Opened>(positionKey(market), {
    ttlMs,
    waitMs,
    holder: desk.processName,
    find: async (tx) => {
      const find = async (text: string, more: readonly string[] = []): Promise<PositionRow | undefined> =>
        (await tx.query<PositionRow>(text, [symbol, market.exchange, ...more])).rows[0]
      // What this request has opened is its answer, also if it was closed since.
      const own = request === undefined ? undefined : await find(FIND_OF_REQUEST, [request])
      const row = own ?? (await find(FIND_OPEN))
      if (row === undefined) return undefined
      if (row.status === 'opening') return { pending: row }
      if (own === undefined && row.status === 'closing') throw isClosing(symbol)
      return { done: row }
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
    const { valid_until: validUntil } = row
    const { positionId, price } = await exchange
      .place({ ...order, ...(validUntil !== null && { validUntil }) }, signal)
      .catch((error: unknown) => {
        throw error instanceof ExchangeRefusedError && error.reason === TOO_LATE
          ? new SignalExpiredError(row.id)
          : error
      })
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
