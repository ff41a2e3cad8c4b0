import type { Desk } from '../desk.ts'
import { type ExchangeName, EXCHANGES } from '../exchange/index.ts'
import { ExchangeClient, type RetryBudget } from './exchangeClient.ts'

export interface PositionOptions {
  /** How long a creator may be silent before another process takes over. */
  readonly ttlMs: number
  /** How often the reconciler looks. */
  readonly everyMs: number
  /**
   * How long the entry of a signal can be executed. It is shorter than the time after which the desk gives up on a silent exchange: a
   * signal that was answered 503 for that is never executed later.
   */
  readonly maxAgeMs: number
  readonly retryBudget?: RetryBudget
}

/** What every step works with. */
export interface PositionContext extends PositionOptions {
  readonly desk: Desk
  readonly exchanges: Readonly<Record<ExchangeName, ExchangeClient>>
}

export function openPositionContext(desk: Desk, options: PositionOptions): PositionContext {
  const exchanges = Object.fromEntries(
    EXCHANGES.map((name) => [name, new ExchangeClient(`${desk.exchangeUrl}/${name}`, options.retryBudget)]),
  ) as Record<ExchangeName, ExchangeClient>
  return { ...options, desk, exchanges }
}
