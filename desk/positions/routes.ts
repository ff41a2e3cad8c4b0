import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi'
import { notFound, ProblemError } from '../http/problem.ts'
import { answers, jsonBody, newRoutes } from '../http/routes.ts'
import { closePosition } from './close.ts'
import { ExchangeRefusedError, ExchangeUnavailableError } from './exchangeClient.ts'
import type { PositionContext } from './positionContext.ts'
import { openPosition } from './open.ts'
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

const Side = z.enum(['long', 'short'])

const Signal = z.object({
  symbol: MarketSymbol,
  side: Side,
  quantity: z.int().positive().max(1_000_000_000).openapi({ example: 5 }),
})

const Position = z
  .object({
    id: z.string(),
    symbol: z.string(),
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

const openRoute = createRoute({
  method: 'post',
  path: '/positions',
  tags: ['positions'],
  summary: 'A signal: opens a position and its stop-loss, once',
  request: { body: jsonBody(Signal) },
  responses: answers(
    { 201: ['It was opened by this request.', Position], 200: ['There was one already.', Position] },
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
  summary: 'The open position of a symbol, or its latest',
  request: { params: InPath },
  responses: answers({ 200: ['The position.', Position] }, [400, 404]),
})

const closeRoute = createRoute({
  method: 'post',
  path: '/positions/{symbol}/close',
  tags: ['positions'],
  summary: 'Closes the open position of a symbol',
  request: { params: InPath },
  responses: answers({ 200: ['It is closed.', Position] }, [400, 404, 409, 503]),
})

export function positionRoutes(context: PositionContext): OpenAPIHono {
  const { pool } = context.desk
  const routes = newRoutes()

  routes.openapi(openRoute, async (c) => {
    const { value, created } = await explained(openPosition(context, c.req.valid('json'), WAIT_MS))
    if (!created) reportPosition({ kind: 'duplicate avoided', position: positionKey(value.symbol), path: 'signal' })
    return c.json(shown(value), created ? 201 : 200)
  })

  routes.openapi(listRoute, async (c) => {
    const { rows } = await pool.query<PositionRow>(LIST, [LIST_LIMIT])
    return c.json(rows.map(shown), 200)
  })

  routes.openapi(oneRoute, async (c) => {
    const { symbol } = c.req.valid('param')
    const [row] = (await pool.query<PositionRow>(FIND_LAST, [symbol])).rows
    if (row === undefined) throw notFound('position', symbol)
    return c.json(shown(row), 200)
  })

  routes.openapi(closeRoute, async (c) => {
    const { symbol } = c.req.valid('param')
    return c.json(shown(await explained(closePosition(context, symbol, WAIT_MS))), 200)
  })

  return routes
}

/** What the exchange said, in words for the client. */
async function explained<T>(work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    if (error instanceof ExchangeRefusedError) {
      const detail = `The exchange said ${error.reason}. There is no position, and nothing is left at the exchange.`
      throw new ProblemError('refused-by-exchange', detail, {
        members: { reason: error.reason },
      })
    }
    if (error instanceof ExchangeUnavailableError) {
      const detail = 'What was begun is brought to its end as soon as the exchange answers. Ask again to see it.'
      throw new ProblemError('exchange-away', detail, { retryAfterSeconds: 5 })
    }
    throw error
  }
}

function shown(row: PositionRow): z.infer<typeof Position> {
  const { id, symbol, side, status, origin, reason } = row
  return {
    id,
    symbol,
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
