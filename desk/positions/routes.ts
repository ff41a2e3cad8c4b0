import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi'
import type { Context } from 'hono'
import { honoHandler } from 'pg-lockstep/http'
import { notFound, ProblemError } from '../http/problem.ts'
import { DEFAULT_EXCHANGE, EXCHANGES } from '../exchange/index.ts'
import { retriedPlainly } from '../http/retried.ts'
import { answers, jsonBody, newRoutes, RetryHeaders } from '../http/routes.ts'
import { closePosition } from './close.ts'
import { ExchangeRefusedError, ExchangeUnavailableError } from './exchangeClient.ts'
import type { PositionContext } from './positionContext.ts'
import { openPosition, SignalExpiredError } from './open.ts'
import { positionKey, type PositionRow } from './position.ts'
import { reportPosition } from './positionEvents.ts'
import { FIND_LAST, LIST } from './positions.sql.ts'

/** A signal that comes while another one is at it waits for as long as that one may take. */
const WAIT_MS = 8000
const LIST_LIMIT = 500

const MarketSymbol = z
  .string()
  .regex(/^[A-Z0-9][A-Z0-9.-]{0,29}$/, 'use 1 to 30 capital letters, digits, points and dashes')
  .openapi({ example: 'BTC' })

const ExchangeName = z
  .enum(EXCHANGES)
  .openapi({ description: `There is one position per symbol and exchange. Default: ${DEFAULT_EXCHANGE}.` })

const Side = z.enum(['long', 'short'])

const Signal = z.object({
  symbol: MarketSymbol,
  exchange: ExchangeName.default(DEFAULT_EXCHANGE),
  side: Side,
  quantity: z.int().positive().max(1_000_000_000).openapi({ example: 5 }),
})

const Position = z
  .object({
    id: z.string(),
    symbol: z.string(),
    exchange: z.enum(EXCHANGES),
    side: Side,
    quantity: z.int(),
    status: z.enum(['opening', 'active', 'closing', 'closed', 'failed']),
    origin: z.enum(['signal', 'adopted']).openapi({ description: 'adopted: it was found at the exchange' }),
    entryPrice: z.int().nullable(),
    stopPrice: z.int().nullable(),
    reason: z.string().nullable().openapi({ description: 'why it is closed or failed' }),
    createdAt: z.string(),
  })
  .openapi('Position')

const InPath = z.object({ symbol: MarketSymbol })
const AtExchange = z.object({ exchange: ExchangeName.default(DEFAULT_EXCHANGE) })

const openRoute = createRoute({
  method: 'post',
  path: '/positions',
  tags: ['positions'],
  summary: 'A signal: opens a position and its stop-loss, once',
  request: { headers: RetryHeaders, body: jsonBody(Signal) },
  responses: answers(
    {
      201: ['It was opened by this request.', Position],
      200: ['There was one already. Its side and quantity can be other than those of the signal.', Position],
    },
    [400, 409, 422, 503],
  ),
})

const listRoute = createRoute({
  method: 'get',
  path: '/positions',
  tags: ['positions'],
  summary: 'Positions: the open ones, then the latest',
  responses: answers({ 200: ['At most 500.', z.array(Position)] }, [503]),
})

const oneRoute = createRoute({
  method: 'get',
  path: '/positions/{symbol}',
  tags: ['positions'],
  summary: 'The open position of a symbol at an exchange, or its latest',
  request: { params: InPath, query: AtExchange },
  responses: answers({ 200: ['The position.', Position] }, [400, 404]),
})

const closeRoute = createRoute({
  method: 'post',
  path: '/positions/{symbol}/close',
  tags: ['positions'],
  summary: 'Closes the open position of a symbol at an exchange',
  request: { params: InPath, query: AtExchange, headers: RetryHeaders },
  responses: answers({ 200: ['It is closed.', Position] }, [400, 404, 409, 422, 503]),
})

export function positionRoutes(context: PositionContext): OpenAPIHono {
  const { pool, lockstep, processName } = context.desk
  const routes = newRoutes()
  const retried = retriedPlainly(lockstep, { ttlMs: context.ttlMs, holder: processName })

  routes.openapi(openRoute, (c) => {
    const request = c.req.valid('header')['idempotency-key']
    return once(c, request, async () => {
      const { value, created } = await explained(openPosition(context, { ...c.req.valid('json'), request }, WAIT_MS))
      if (!created) reportPosition({ kind: 'duplicate avoided', position: positionKey(value), path: 'signal' })
      return c.json(shown(value), created ? 201 : 200)
    })
  })

  routes.openapi(listRoute, async (c) => {
    const { rows } = await pool.query<PositionRow>(LIST, [LIST_LIMIT])
    return c.json(rows.map(shown), 200)
  })

  routes.openapi(oneRoute, async (c) => {
    const { symbol } = c.req.valid('param')
    const { exchange } = c.req.valid('query')
    const [row] = (await pool.query<PositionRow>(FIND_LAST, [symbol, exchange])).rows
    if (row === undefined) throw notFound('position', `${symbol} at ${exchange}`)
    return c.json(shown(row), 200)
  })

  routes.openapi(closeRoute, (c) => {
    const market = { ...c.req.valid('param'), ...c.req.valid('query') }
    const request = c.req.valid('header')['idempotency-key']
    return once(c, request, async () =>
      c.json(shown(await explained(closePosition(context, market, WAIT_MS, request))), 200),
    )
  })

  /** With a key, a repeated request gets the first answer, also if that was a refusal by the exchange. */
  async function once<Answer extends Response>(
    c: Context,
    request: string | undefined,
    work: () => Promise<Answer>,
  ): Promise<Answer | Response> {
    if (request === undefined) return work()
    return honoHandler(retried, async () => {
      try {
        return await work()
      } catch (error) {
        if (error instanceof ProblemError && error.status === 422) return error.answer(c)
        throw error
      }
    })(c)
  }

  return routes
}

/** What the exchange said, in words for the client. */
async function explained<T>(work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    if (error instanceof SignalExpiredError) {
      const detail =
        'The exchange was away for too long. Nothing was executed, and nothing will be. Send the signal again.'
      throw new ProblemError('signal-expired', detail, { retryAfterSeconds: 1 })
    }
    if (error instanceof ExchangeRefusedError) {
      const detail = `The exchange said ${error.reason}. There is no position, and nothing is left at the exchange.`
      throw new ProblemError('refused-by-exchange', detail, {
        members: { reason: error.reason },
      })
    }
    if (error instanceof ExchangeUnavailableError) {
      const detail =
        'What the exchange has executed is completed as soon as it answers. An entry that it has not executed by now is not executed later.'
      throw new ProblemError('exchange-away', detail, { retryAfterSeconds: 5 })
    }
    throw error
  }
}

function shown(row: PositionRow): z.infer<typeof Position> {
  const { id, symbol, exchange, side, status, origin, reason } = row
  return {
    id,
    symbol,
    exchange,
    side,
    quantity: Number(row.quantity),
    status,
    origin,
    entryPrice: row.entry_price === null ? null : Number(row.entry_price),
    stopPrice: row.stop_price === null ? null : Number(row.stop_price),
    reason,
    createdAt: row.created_at.toISOString(),
  }
}
