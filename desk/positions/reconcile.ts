import { setTimeout as sleep } from 'node:timers/promises'
import { type Key, LeaseHeldError, LeaseLostError } from 'pg-lockstep'
import { DEFAULT_EXCHANGE, type ExchangeName, type OpenPosition } from '../exchange/index.ts'
import { ProblemError } from '../http/problem.ts'
import { ExchangeRefusedError, ExchangeUnavailableError } from './exchangeClient.ts'
import type { PositionContext } from './positionContext.ts'
import { adoptPosition, NothingBegunError, takeOver } from './open.ts'
import { orderIds, positionKey, type PositionRow, signedQuantity } from './position.ts'
import { reportPosition } from './positionEvents.ts'
import { KNOWN, NOTE_ROUND } from './positions.sql.ts'
import { repair } from './repair.ts'

/** How many symbols are repaired at once, fewer than the pool has connections; the others follow in the next round. */
const MOST_REPAIRS = 8
const MOST_LEASES = 10_000

/** What a round has seen. */
export interface Round {
  readonly positions: number
  /** On how many symbols exchange and desk differ, with those that a process works on. */
  readonly differences: number
  /** How many repairs it has begun. */
  readonly repairs: number
  readonly tookMs: number
}

/**
 * Compares one exchange and the desk. A round looks and decides, and is short; what it finds is repaired beside it, each symbol under its
 * own lease, because a stop-loss takes longer than the time between two rounds.
 */
export class Reconciler {
  readonly #context: PositionContext
  readonly #exchange: ExchangeName
  readonly #repairing = new Map<string, Promise<void>>()

  constructor(context: PositionContext, exchange: ExchangeName = DEFAULT_EXCHANGE) {
    this.#context = context
    this.#exchange = exchange
  }

  /** A round every `everyMs`, until the signal. Whatever goes wrong, the next round tries again. */
  async run(signal: AbortSignal): Promise<void> {
    const { desk, everyMs } = this.#context
    while (!signal.aborted) {
      const began = performance.now()
      try {
        const round = await this.round(signal)
        const { tookMs, positions, repairs, differences } = round
        reportPosition({ kind: 'round', tookMs, differences, repairs })
        const values = [desk.processName, tookMs, positions, repairs, differences, this.#exchange]
        await desk.pool.query(NOTE_ROUND, values)
      } catch (error) {
        if (!signal.aborted) desk.say(`reconciler of ${this.#exchange}: ${(error as Error).message}`)
      }
      const pauseMs = Math.max(0, everyMs - (performance.now() - began))
      await sleep(pauseMs, undefined, { signal }).catch(() => undefined)
    }
    await this.settled()
  }

  /** All repairs that were begun have come to an end. */
  async settled(): Promise<void> {
    await Promise.all(this.#repairing.values())
  }

  async round(signal: AbortSignal): Promise<Round> {
    const { desk, exchanges } = this.#context
    const exchange = this.#exchange
    const began = performance.now()
    // The exchange first: what it shows and the desk does not know was not begun by the desk before.
    const atExchange = await exchanges[exchange].positions(signal)
    const { rows } = await desk.pool.query<PositionRow>(KNOWN, [atExchange.map(({ id }) => id), exchange])
    // The holder of the symbol's lease works on it: one query for all of them, instead of a refusal for each.
    const leases = await desk.lockstep.leases.list({ prefix: 'Position:', limit: MOST_LEASES })
    const inHand = new Set(leases.filter(({ holders }) => holders.length > 0).map(({ key }) => key))
    let repairs = 0
    const differences = [...this.#differences(atExchange, rows)]
    for (const { symbol, work } of differences) {
      if (this.#repairing.size >= MOST_REPAIRS) break
      if (this.#repairing.has(symbol) || inHand.has(positionKey({ symbol, exchange }))) continue
      repairs++
      this.#begin(symbol, work)
    }
    const found = { positions: atExchange.length, differences: differences.length }
    return { ...found, repairs, tookMs: performance.now() - began }
  }

  *#differences(
    atExchange: readonly OpenPosition[],
    rows: readonly PositionRow[],
  ): Generator<{ readonly symbol: string; readonly work: () => Promise<unknown> }> {
    const context = this.#context
    const exchange = this.#exchange
    const open = new Map(rows.filter(isOpen).map((row) => [row.symbol, row]))
    const knownIds = new Set(rows.map((row) => Number(row.exchange_id)))
    const held = new Map(atExchange.map((position) => [position.symbol, position]))
    for (const position of atExchange) {
      const { symbol } = position
      if (!open.has(symbol) && !knownIds.has(position.id))
        yield { symbol, work: () => adopt(context, exchange, position) }
    }
    for (const row of open.values()) {
      const { symbol } = row
      if (row.status === 'opening') yield { symbol, work: () => repaired(positionKey(row), takeOver(context, row)) }
      else if (!agrees(row, held.get(symbol)))
        yield { symbol, work: () => repaired(positionKey(row), repair(context, row)) }
    }
  }

  #begin(symbol: string, work: () => Promise<unknown>): void {
    const { desk } = this.#context
    const repairing = work()
      .then(
        () => undefined,
        (error: unknown) => {
          if (isElsewhere(error)) return
          const position = positionKey({ symbol, exchange: this.#exchange })
          reportPosition({ kind: 'not repaired', position, reason: (error as Error).message })
          if (!isOrdinary(error)) desk.say(`reconciler of ${this.#exchange}, ${symbol}: ${(error as Error).message}`)
        },
      )
      .finally(() => this.#repairing.delete(symbol))
    this.#repairing.set(symbol, repairing)
  }
}

async function adopt(context: PositionContext, exchange: ExchangeName, found: OpenPosition): Promise<void> {
  const { value, created } = await adoptPosition(context, exchange, found)
  const position = positionKey({ symbol: found.symbol, exchange })
  if (!created) reportPosition({ kind: 'duplicate avoided', position, path: 'reconciler' })
  // Otherwise it was a signal's, whose creator is gone.
  else reportPosition({ kind: value.origin === 'adopted' ? 'adopted' : 'repaired', position })
}

async function repaired(position: Key, work: Promise<unknown>): Promise<void> {
  await work
  reportPosition({ kind: 'repaired', position })
}

function isOpen({ status }: PositionRow): boolean {
  return status === 'opening' || status === 'active' || status === 'closing'
}

function agrees(row: PositionRow, held: OpenPosition | undefined): boolean {
  return (
    row.status === 'active' &&
    held !== undefined &&
    held.id === Number(row.exchange_id) &&
    held.net === signedQuantity(row) &&
    held.stops.length === 1 &&
    held.stops[0] === orderIds.stop(row)
  )
}

/** Another process works on it, or did. */
function isElsewhere(error: unknown): boolean {
  return [LeaseHeldError, LeaseLostError, NothingBegunError, ProblemError].some((kind) => error instanceof kind)
}

/** The exchange will be asked again in the next round. */
function isOrdinary(error: unknown): boolean {
  return [ExchangeUnavailableError, ExchangeRefusedError].some((kind) => error instanceof kind)
}
