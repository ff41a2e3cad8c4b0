import type { Desk } from '../desk.ts'
import { ExchangeClient, type RetryBudget } from './exchangeClient.ts'

export interface PositionOptions {
  /** How long a creator may be silent before somebody else takes over. */
  readonly ttlMs: number
  /** How often the reconciler looks. */
  readonly everyMs: number
  readonly retryBudget?: RetryBudget
}

/** What every step works with. */
export interface PositionContext extends PositionOptions {
  readonly desk: Desk
  readonly exchange: ExchangeClient
}

export function openPositionContext(desk: Desk, options: PositionOptions): PositionContext {
  return { ...options, desk, exchange: new ExchangeClient(desk.exchangeUrl, options.retryBudget) }
}
