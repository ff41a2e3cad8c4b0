import { randomUUID } from 'node:crypto'
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi'
import { key } from 'pg-lockstep'
import { honoHandler } from 'pg-lockstep/http'
import type { Desk } from '../desk.ts'
import { wantsPage } from '../http/page.ts'
import { retriedInTransaction } from '../http/retried.ts'
import { Amount, answers, Id, IdInPath, jsonBody, newRoutes, RetryHeaders } from '../http/routes.ts'
import { receiveWebhook, WEBHOOK_PATH } from './brokers/index.ts'
import { type PortfolioRow, portfoliosPage, type PublishedEvent, publishedPage } from './publishedPage.ts'
import { HOLDINGS_OF, INSERT_TRADE, LOG_OF, PORTFOLIOS, TRADES_OF } from './trades.sql.ts'

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
/** The number of its event: of the stream of its portfolio, from 1 and without a gap. */
const Numbered = Trade.extend({ at: z.string(), seq: z.int().nullable() }).openapi('NumberedTrade')
const Published = z
  .object({
    place: z.int().openapi({ description: 'In the order of arrival, of all portfolios together.' }),
    seq: z.int().openapi({ description: 'The number of the event in its portfolio: from 1, without a gap.' }),
    at: z.string(),
    trade: z.uuid().nullable().openapi({ description: 'None: an event that was given up, and its number kept.' }),
    symbol: Symbol.nullable(),
    side: z.enum(['buy', 'sell']).nullable(),
    quantity: z.int().nullable(),
    price: z.int().nullable(),
  })
  .openapi('Published')
const Portfolio = z.object({ portfolio: Id, trades: z.int(), published: z.int() }).openapi('Portfolio')
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
  summary:
    'The newest 1,000 trades of a portfolio, in their order, each with the number of its event once that was published',
  request: { params: IdInPath },
  responses: answers({ 200: ['The trades.', z.array(Numbered)] }),
})

const listPublished = createRoute({
  method: 'get',
  path: '/portfolios/{id}/log',
  tags: ['trades'],
  summary: 'The newest 1,000 events of a portfolio, in the order in which they arrived; a page for browsers',
  request: { params: IdInPath },
  responses: answers({ 200: ['The events.', z.array(Published)] }),
})

const listPortfolios = createRoute({
  method: 'get',
  path: '/portfolios',
  tags: ['trades'],
  summary: 'Portfolios, with how many of their trades are published; a page for browsers',
  responses: answers({ 200: ['At most 200.', z.array(Portfolio)] }, []),
})

const listHoldings = createRoute({
  method: 'get',
  path: '/portfolios/{id}/holdings',
  tags: ['trades'],
  summary: 'What a portfolio holds, as the reader of the events knows it',
  request: { params: IdInPath },
  responses: answers({ 200: ['The holdings.', z.array(Holding)] }),
})

export function tradeRoutes(desk: Desk): OpenAPIHono {
  const { pool, lockstep } = desk
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

  // Only where webhooks are the sink: they are verified by their signature.
  if (desk.sink?.name === 'webhook') routes.post(WEBHOOK_PATH, (c) => receiveWebhook(desk, c))

  routes.openapi(listTrades, async (c) => {
    const { rows } = await pool.query(TRADES_OF, [c.req.valid('param').id])
    return c.json(rows, 200)
  })

  routes.openapi(listPublished, async (c) => {
    const { id } = c.req.valid('param')
    const { rows } = await pool.query<PublishedEvent>(LOG_OF, [id])
    return wantsPage(c) ? c.html(publishedPage(id, rows)) : c.json(rows, 200)
  })

  routes.openapi(listPortfolios, async (c) => {
    const { rows } = await pool.query<PortfolioRow>(PORTFOLIOS)
    return wantsPage(c) ? c.html(portfoliosPage(rows)) : c.json(rows, 200)
  })

  routes.openapi(listHoldings, async (c) => {
    const { rows } = await pool.query(HOLDINGS_OF, [c.req.valid('param').id])
    return c.json(rows, 200)
  })

  return routes
}
