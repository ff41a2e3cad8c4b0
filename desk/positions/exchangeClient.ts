import { setTimeout as sleep } from 'node:timers/promises'
import type { OpenPosition, Order } from '../exchange/index.ts'

/** The exchange has said no, and will say it again: with this id, nothing is done. */
export class ExchangeRefusedError extends Error {
  override readonly name = 'ExchangeRefusedError'
  readonly reason: string

  constructor(reason: string) {
    super(`The exchange refused: ${reason}.`)
    this.reason = reason
  }
}

/** No answer in time. What was asked for may be done, now or later. */
export class ExchangeUnavailableError extends Error {
  override readonly name = 'ExchangeUnavailableError'
}

export type OrderRequest = { readonly clientId: string; readonly symbol: string } & (
  | { readonly kind: 'market'; readonly change: number; readonly validUntil?: Date }
  | { readonly kind: 'stop'; readonly positionId: number; readonly price: number }
  | { readonly kind: 'close'; readonly positionId: number }
)

export interface RetryBudget {
  /** For one try. An answer that is later is asked for again. */
  readonly tryMs: number
  /** For all of them. */
  readonly totalMs: number
}

const DEFAULT_RETRY_BUDGET: RetryBudget = { tryMs: 6000, totalMs: 15_000 }
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 1000

/** The way to one exchange. Asking again is safe, because every order has an id of ours; so it asks again until it knows. */
export class ExchangeClient {
  readonly #url: string
  readonly #retryBudget: RetryBudget

  constructor(url: string, retryBudget: RetryBudget = DEFAULT_RETRY_BUDGET) {
    this.#url = url
    this.#retryBudget = retryBudget
  }

  /** Places an order, or reads its outcome. */
  place(order: OrderRequest, signal: AbortSignal): Promise<Order> {
    return this.#ask<Order>('/orders', signal, order)
  }

  async cancel(clientId: string, signal: AbortSignal): Promise<void> {
    await this.#ask('/cancel', signal, { clientId })
  }

  positions(signal: AbortSignal): Promise<OpenPosition[]> {
    return this.#ask('/positions', signal)
  }

  async position(symbol: string, signal: AbortSignal): Promise<OpenPosition | undefined> {
    const [position] = await this.#ask<OpenPosition[]>(`/positions?symbol=${encodeURIComponent(symbol)}`, signal)
    return position
  }

  async #ask<T>(path: string, signal: AbortSignal, body?: unknown): Promise<T> {
    const deadline = performance.now() + this.#retryBudget.totalMs
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
      const leftMs = Math.ceil(deadline - performance.now())
      const answer =
        leftMs > 0 ? await this.#try(path, signal, Math.min(leftMs, this.#retryBudget.tryMs), body) : undefined
      signal.throwIfAborted()
      if (answer !== undefined && answer.status < 300) return answer.body as T
      if (answer !== undefined && answer.status < 500) throw new ExchangeRefusedError(reasonIn(answer.body))
      if (performance.now() + pauseMs > deadline) throw new ExchangeUnavailableError('The exchange gives no answer.')
      await sleep(pauseMs * (0.5 + Math.random()), undefined, { signal })
    }
  }

  /** Undefined where no answer came: a cut connection, or too late. */
  async #try(
    path: string,
    signal: AbortSignal,
    timeoutMs: number,
    body: unknown,
  ): Promise<{ readonly status: number; readonly body: unknown } | undefined> {
    try {
      const response = await fetch(this.#url + path, {
        signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
        ...(body !== undefined && {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify(body),
        }),
      })
      return { status: response.status, body: await response.json() }
    } catch {
      return undefined
    }
  }
}

function reasonIn(body: unknown): string {
  const { reason, error } = (body ?? {}) as { reason?: unknown; error?: unknown }
  return typeof reason === 'string' ? reason : typeof error === 'string' ? error : 'unknown'
}
