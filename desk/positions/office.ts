import type { Desk } from '../desk.ts'
import { ExchangeClient, type Patience } from './exchangeClient.ts'

export interface PositionOptions {
  /** How long a creator may be silent before somebody else takes over. */
  readonly ttlMs: number
  /** How often the reconciler looks. */
  readonly everyMs: number
  readonly patience?: Patience
}

/** What every step works with. */
export interface Office extends PositionOptions {
  readonly desk: Desk
  readonly exchange: ExchangeClient
}

export function openOffice(desk: Desk, options: PositionOptions): Office {
  return { ...options, desk, exchange: new ExchangeClient(desk.exchangeUrl, options.patience) }
}
