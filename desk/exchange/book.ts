import type pg from 'pg'
import {
  CANCEL,
  CLOSE_POSITION,
  GUARD_POSITION,
  LIVE_ORDERS,
  ONE_ORDER,
  OPEN_POSITIONS,
  TRADE,
} from './exchange.sql.ts'
import type { ExchangeName } from './names.ts'

export type OrderKind = 'market' | 'stop' | 'close' | 'manual'

/** What the exchange reports about an order. */
export interface Order {
  readonly clientId: string
  readonly kind: OrderKind
  readonly symbol: string
  readonly status: 'filled' | 'live' | 'cancelled' | 'refused'
  /** Why it was refused. */
  readonly reason: string | null
  /** The opening of the position that it made, changed or guards; null if it had no effect. */
  readonly positionId: number | null
  readonly price: number
}

/** What the exchange reports about an open position. */
export interface OpenPosition {
  readonly id: number
  readonly symbol: string
  /** Above zero: long. Below: short. */
  readonly net: number
  readonly price: number
  /** The client ids of its live stop orders. */
  readonly stops: readonly string[]
}

interface OrderRow extends pg.QueryResultRow {
  readonly client_id: string
  readonly kind: OrderKind
  readonly symbol: string
  readonly status: Order['status']
  readonly reason: string | null
  readonly position_id: string | null
  readonly price: string
}

interface PositionRow extends pg.QueryResultRow {
  readonly id: string
  readonly symbol: string
  readonly net: string
  readonly price: string
  readonly stops: string[]
}

/** The most of one symbol in one order. */
const LARGEST_ORDER = 100_000

/** The book of one exchange: orders and positions, in the exchanges' own tables. */
export class Book {
  readonly #pool: pg.Pool
  readonly #exchange: ExchangeName

  constructor(pool: pg.Pool, exchange: ExchangeName) {
    this.#pool = pool
    this.#exchange = exchange
  }

  /** After `validUntil`, an order that was not executed before is refused. */
  trade(
    clientId: string,
    kind: 'market' | 'manual',
    symbol: string,
    change: number,
    validUntil?: Date,
  ): Promise<Order> {
    const why = whyNot(symbol, change)
    return this.#order(TRADE, [clientId, kind, symbol, change, priceOf(symbol), why, validUntil ?? null])
  }

  stop(clientId: string, symbol: string, positionId: number, price: number): Promise<Order> {
    return this.#order(GUARD_POSITION, [clientId, symbol, positionId, price, whyNoStop(symbol)])
  }

  close(clientId: string, symbol: string, positionId: number): Promise<Order> {
    return this.#order(CLOSE_POSITION, [clientId, symbol, positionId, priceOf(symbol)])
  }

  async cancel(clientId: string): Promise<Order | undefined> {
    const { rows } = await this.#pool.query<OrderRow>(CANCEL, [this.#exchange, clientId])
    return rows[0] && toOrder(rows[0])
  }

  async order(clientId: string): Promise<Order | undefined> {
    const { rows } = await this.#pool.query<OrderRow>(ONE_ORDER, [this.#exchange, clientId])
    return rows[0] && toOrder(rows[0])
  }

  async liveOrders(): Promise<Order[]> {
    const { rows } = await this.#pool.query<OrderRow>(LIVE_ORDERS, [this.#exchange])
    return rows.map(toOrder)
  }

  async positions(symbol?: string): Promise<OpenPosition[]> {
    const { rows } = await this.#pool.query<PositionRow>(OPEN_POSITIONS, [this.#exchange, symbol ?? null])
    return rows.map(({ id, net, price, ...row }) => ({
      ...row,
      id: Number(id),
      net: Number(net),
      price: Number(price),
    }))
  }

  async #order(text: string, values: readonly unknown[]): Promise<Order> {
    const { rows } = await this.#pool.query<OrderRow>(text, [this.#exchange, ...values])
    return toOrder(rows[0] as OrderRow)
  }
}

function toOrder(row: OrderRow): Order {
  const { client_id: clientId, kind, symbol, status, reason, position_id: positionId, price } = row
  return {
    clientId,
    kind,
    symbol,
    status,
    reason,
    positionId: positionId === null ? null : Number(positionId),
    price: Number(price),
  }
}

/** In cents, and always the same: markets that move would show nothing more. */
export function priceOf(symbol: string): number {
  let sum = 0
  for (const character of symbol) sum = (sum * 31 + (character.codePointAt(0) ?? 0)) % 90_000
  return 10_000 + sum
}

/** Some markets take no stop orders: a position that needs one there must be closed again. */
function whyNoStop(symbol: string): string | null {
  return symbol.startsWith('NOSTOP') ? 'no-stop-orders-here' : null
}

function whyNot(symbol: string, change: number): string | null {
  if (symbol.startsWith('HALT')) return 'trading-halted'
  return Math.abs(change) > LARGEST_ORDER ? 'order-too-large' : null
}
