import { randomUUID } from 'node:crypto'
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi'
import { key } from 'pg-lockstep'
import { honoHandler } from 'pg-lockstep/http'
import type { Desk } from '../desk.ts'
import { retriedInTransaction } from '../http/retried.ts'
import { Amount, answers, Id, IdInPath, jsonBody, newRoutes, RetryHeaders } from '../http/routes.ts'
import { HOLDINGS_OF, INSERT_TRADE, TRADES_OF } from './trades.sql.ts'

const Symbol = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$/, 'use 1 to 32 letters, digits, points, dashes and underscores')
  .openapi({ example: 'ACME' })

const Order = z.object({
  symbol: Symbol,
  side: z.enum(['buy', 'sell']),
  quantity: z.int().positive().max(1_000_000_000).openapi({ example: 10 }),
  price: Amount,
})
const Trade = Order.extend({ id: z.uuid(), portfolio: Id }).openapi('Trade')
const Holding = z.object({ symbol: Symbol, quantity: z.int(), paid: z.int() }).openapi('Holding')

const createTrade = createRoute({
  method: 'post',
  path: '/portfolios/{id}/trades',
  tags: ['trades'],
  summary: 'Trade: the row and its event are committed together',
  request: { params: IdInPath, headers: RetryHeaders, body: jsonBody(Order) },
  responses: answers({ 201: ['The trade.', Trade] }, [400, 409, 422, 503]),
})

const listTrades = createRoute({
  method: 'get',
  path: '/portfolios/{id}/trades',
  tags: ['trades'],
  summary: 'The newest 1,000 trades of a portfolio, in their order',
  request: { params: IdInPath },
  responses: answers({ 200: ['The trades.', z.array(Trade)] }),
})

const listHoldings = createRoute({
  method: 'get',
  path: '/portfolios/{id}/holdings',
  tags: ['trades'],
  summary: 'What a portfolio holds, as the reader of the events knows it',
  request: { params: IdInPath },
  responses: answers({ 200: ['The holdings.', z.array(Holding)] }),
})

export function tradeRoutes({ pool, lockstep }: Desk): OpenAPIHono {
  const routes = newRoutes()
  // The lock makes the order of the rows that of the events: both are that of the commits.
  const trading = retriedInTransaction(lockstep, { lock: (c) => key`Portfolio:${c.req.param('id') ?? ''}` })

  routes.openapi(createTrade, (c) => {
    const portfolio = c.req.valid('param').id
    const order = c.req.valid('json')
    return honoHandler(trading, async (_, tx) => {
      const { symbol, side, quantity, price } = order
      const id = randomUUID()
      await tx.query(INSERT_TRADE, [id, portfolio, symbol, side, quantity, price])
      await tx.enqueue({ topic: 'trades', key: portfolio, payload: { tradeId: id, portfolio, ...order } })
      return c.json({ id, portfolio, ...order }, 201)
    })(c)
  })

  routes.openapi(listTrades, async (c) => {
    const { rows } = await pool.query(TRADES_OF, [c.req.valid('param').id])
    return c.json(rows, 200)
  })

  routes.openapi(listHoldings, async (c) => {
    const { rows } = await pool.query(HOLDINGS_OF, [c.req.valid('param').id])
    return c.json(rows, 200)
  })

  return routes
}
