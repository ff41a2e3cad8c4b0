import { type Key, key } from 'pg-lockstep'
import type { ExchangeName, OpenPosition } from '../exchange/index.ts'

export type Side = 'long' | 'short'

/** Where a position is: there is one at a time. */
export interface Market {
  readonly symbol: string
  readonly exchange: ExchangeName
}

/** What a signal asks for. */
export interface Signal extends Market {
  readonly side: Side
  readonly quantity: number
  /** The Idempotency-Key of its request. */
  readonly request?: string | undefined
}

/** As it stands in the table: `pg` gives a bigint as a text. */
export interface PositionRow extends Market {
  readonly id: string
  readonly side: Side
  readonly quantity: string
  readonly status: 'opening' | 'active' | 'closing' | 'closed' | 'failed'
  readonly origin: 'signal' | 'adopted'
  /** Which opening at the exchange it is; null until that is known. */
  readonly exchange_id: string | null
  readonly entry_price: string | null
  readonly stop_price: string | null
  readonly stop_number: number
  readonly reason: string | null
  readonly created_at: Date
  readonly ended_at: Date | null
  /** After this time its entry is not executed any more; null where it was adopted. */
  readonly valid_until: Date | null
}

/** Signal, reconciler and closing of one symbol at one exchange exclude each other by this. */
export function positionKey({ symbol, exchange }: Market): Key {
  return key`Position:${symbol}:${exchange}`
}

/** The ids of its orders at the exchange follow from its own: a process that takes over sends the same. */
export const orderIds = {
  entry: ({ id }: PositionRow): string => `${id}-entry`,
  stop: ({ id, stop_number: number }: PositionRow): string => `${id}-stop-${number}`,
  close: ({ id }: PositionRow): string => `${id}-close`,
}

export function signedQuantity({
  side,
  quantity,
}: {
  readonly side: Side
  readonly quantity: string | number
}): number {
  return side === 'long' ? Number(quantity) : -Number(quantity)
}

export function sideOf({ net }: OpenPosition): Side {
  return net > 0 ? 'long' : 'short'
}

const STOP_PERCENT = 2

/** Two percent on the losing side. */
export function stopPrice(side: Side, price: number): number {
  return Math.round((price * (100 + (side === 'long' ? -STOP_PERCENT : STOP_PERCENT))) / 100)
}
