import { Hono } from 'hono'
import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import { afterAll, expect } from 'vitest'
import type { Desk, DeskEvents } from '../../desk.ts'
import {
  DEFAULT_EXCHANGE,
  type Exchange,
  type ExchangeName,
  type Faults,
  startExchange,
  type Timings,
} from '../../exchange/index.ts'
import { internal, problemOf } from '../../http/errors.ts'
import { createPositions } from '../index.ts'
import { openPositionContext, type PositionContext, type PositionOptions } from '../positionContext.ts'
import type { Reconciler } from '../reconcile.ts'

/** As quick as a test wants it: the order of things is the same. */
export const QUICK: Timings = { entryMs: 20, stopMs: 60, closeMs: 20, readMs: 1 }
/** Patient, because the machine may be busy with something else. */
export const OPTIONS: PositionOptions = {
  ttlMs: 10_000,
  everyMs: 100,
  maxAgeMs: 120_000,
  retryBudget: { tryMs: 10_000, totalMs: 20_000 },
}

/** One process of the desk, as far as positions go. */
export interface PositionProcess {
  readonly desk: Desk
  readonly context: PositionContext
  readonly said: string[]
  post(
    path: string,
    body?: unknown,
    key?: string,
  ): Promise<{ readonly status: number; readonly body: Record<string, unknown> }>
  get(path: string): Promise<{ readonly status: number; readonly body: unknown }>
  close(): Promise<void>
}

export async function openExchange(url: string, timings: Timings = QUICK): Promise<Exchange> {
  const exchange = await startExchange({ url, timings })
  afterAll(() => exchange.close())
  return exchange
}

export async function openPositionProcess(
  url: string,
  exchangeUrl: string,
  name: string,
  given: Partial<PositionOptions> & { readonly max?: number } = {},
): Promise<PositionProcess> {
  const { max = 5, ...more } = given
  const options = { ...OPTIONS, ...more }
  const pool = new pg.Pool({ connectionString: url, max })
  const lockstep = new Lockstep<DeskEvents, pg.Pool>(pool)
  const said: string[] = []
  const desk: Desk = { pool, lockstep, exchangeUrl, waitMs: 10_000, processName: name, say: (line) => said.push(line) }
  const positions = createPositions(options)
  await lockstep.migrate()
  await pool.query(positions.schema)
  const app = new Hono()
  app.onError((error, c) => (problemOf(error) ?? internal()).answer(c))
  app.route('/', positions.routes(desk))
  let closed = false
  const branch: PositionProcess = {
    desk,
    context: openPositionContext(desk, options),
    said,
    async post(path, body, key) {
      const response = await app.request(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...(key !== undefined && { 'idempotency-key': key }) },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      })
      return { status: response.status, body: (await response.json()) as Record<string, unknown> }
    },
    async get(path) {
      const response = await app.request(path)
      return { status: response.status, body: await response.json() }
    },
    async close() {
      if (closed) return
      closed = true
      await lockstep.close()
      await pool.end()
    },
  }
  afterAll(() => branch.close())
  return branch
}

export async function setFaults(exchange: Exchange, faults: Partial<Faults>): Promise<void> {
  await postTo(exchange, '/faults', faults)
}

/** A person at a screen. */
export async function tradeByHand(
  exchange: Exchange,
  symbol: string,
  side: 'buy' | 'sell',
  quantity = 1,
  name: ExchangeName = DEFAULT_EXCHANGE,
): Promise<void> {
  await postTo(exchange, `/${name}/manual-trades`, { symbol, side, quantity })
}

async function postTo(exchange: Exchange, path: string, body: unknown): Promise<void> {
  const response = await fetch(exchange.url + path, { method: 'POST', body: JSON.stringify(body) })
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`)
}

let attempts = 0

/** A symbol that no other attempt of a test has touched. */
export function freshSymbol(name: string): string {
  return `${name}.${++attempts}`
}

/** Rounds until one finds nothing to do; a dead creator's lease must end first. */
export async function reconciled(reconciler: Reconciler): Promise<void> {
  const { signal } = new AbortController()
  await expect
    .poll(
      async () => {
        const { differences } = await reconciler.round(signal)
        await reconciler.settled()
        return differences
      },
      { timeout: 15_000, interval: 20 },
    )
    .toBe(0)
}
