import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { Book, type Order } from './book.ts'
import { SCHEMA, TELL_ADDRESS } from './exchange.sql.ts'
import { FaultDice, type Faults, readFaults } from './faults.ts'
import { DEFAULT_EXCHANGE, type ExchangeName, EXCHANGES } from './names.ts'

/** How long the exchange takes; the effect is there at four fifths of it. */
export interface Timings {
  readonly entryMs: number
  readonly stopMs: number
  readonly closeMs: number
  readonly readMs: number
}

export interface ExchangeOptions {
  /** The database in which it keeps its tables. */
  readonly url: string
  /** Absent: a free one. */
  readonly port?: number
  readonly timings?: Partial<Timings>
  readonly faults?: Partial<Faults>
}

export interface Exchange {
  readonly url: string
  close(): Promise<void>
}

export const TIMINGS: Timings = { entryMs: 350, stopMs: 2400, closeMs: 350, readMs: 20 }

const BODY_LIMIT_BYTES = 16_384
const CONNECTIONS = 5
/** The part of the time that goes by before the effect. */
const BEFORE = 0.8

interface Answer {
  readonly status: number
  readonly body: unknown
}

type Books = Readonly<Record<ExchangeName, Book>>

/** Whose a path is: `/south/orders`, or that of the first exchange, `/orders`. */
function exchangeOf(pathname: string): { readonly exchange: ExchangeName; readonly path: string } {
  const exchange = EXCHANGES.find((name) => pathname.startsWith(`/${name}/`))
  if (exchange === undefined) return { exchange: DEFAULT_EXCHANGE, path: pathname }
  return { exchange, path: pathname.slice(exchange.length + 1) }
}

class BadRequestError extends Error {}

/** Starts the simulated exchange. */
export async function startExchange(options: ExchangeOptions): Promise<Exchange> {
  const pool = new pg.Pool({
    connectionString: options.url,
    max: CONNECTIONS,
    application_name: 'simulated exchange',
  })
  // A session that is ended while it is idle is replaced at the next request.
  pool.on('error', () => undefined)
  const books: Books = { north: new Book(pool, 'north'), south: new Book(pool, 'south') }
  const dice = new FaultDice(options.faults)
  const timings = { ...TIMINGS, ...options.timings }
  const working = new Set<Promise<void>>()
  const server = createServer((request, response) => {
    const work = serve(request, response, books, dice, timings).finally(() => working.delete(work))
    working.add(work)
  })
  try {
    await pool.query(SCHEMA)
    server.listen(options.port ?? 0, '127.0.0.1')
    await once(server, 'listening')
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    await pool.query(TELL_ADDRESS, [url])
    return {
      url,
      async close() {
        server.close()
        // Requests in progress lose their answer. Their effect is completed first, as an exchange would.
        await Promise.all(working)
        server.closeAllConnections()
        await pool.end()
      },
    }
  } catch (error) {
    server.close()
    await pool.end()
    throw error
  }
}

async function serve(
  request: IncomingMessage,
  response: ServerResponse,
  books: Books,
  dice: FaultDice,
  timings: Timings,
): Promise<void> {
  response.on('error', () => undefined)
  try {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://exchange')
    const { exchange, path } = exchangeOf(pathname)
    const book = books[exchange]
    const route = `${request.method} ${path}`
    const body = request.method === 'POST' ? await readBody(request) : {}
    // A person at a screen, and who adjusts the faults, are not struck by them.
    if (route === 'GET /faults' || route === 'POST /faults') return send(response, adjust(dice, request.method, body))
    if (route === 'POST /manual-trades') return send(response, await manualTrade(book, body))
    if (dice.fails()) return send(response, { status: 503, body: { error: 'overloaded' } })
    await dice.slowDown()
    const answer = await answerTo(route, searchParams, body, book, timings)
    if (request.method !== 'GET' && dice.loses()) {
      response.destroy()
      return
    }
    send(response, answer)
  } catch (error) {
    const bad = error instanceof BadRequestError
    send(response, { status: bad ? 400 : 500, body: { error: bad ? error.message : 'internal' } })
  }
}

async function answerTo(
  route: string,
  query: URLSearchParams,
  body: Record<string, unknown>,
  book: Book,
  timings: Timings,
): Promise<Answer> {
  if (route === 'GET /positions') {
    await sleep(timings.readMs)
    return { status: 200, body: await book.positions(query.get('symbol') ?? undefined) }
  }
  if (route === 'GET /orders') {
    await sleep(timings.readMs)
    const clientId = query.get('clientId')
    if (clientId === null) return { status: 200, body: await book.liveOrders() }
    const order = await book.order(clientId)
    return order === undefined ? { status: 404, body: { error: 'no such order' } } : { status: 200, body: order }
  }
  if (route === 'POST /orders') return placeOrder(body, book, timings)
  if (route === 'POST /cancel') {
    const order = await book.cancel(text(body, 'clientId'))
    return order === undefined ? { status: 404, body: { error: 'no such order' } } : { status: 200, body: order }
  }
  return { status: 404, body: { error: `there is no ${route}` } }
}

async function placeOrder(body: Record<string, unknown>, book: Book, timings: Timings): Promise<Answer> {
  const clientId = text(body, 'clientId')
  const symbol = text(body, 'symbol')
  const kind = text(body, 'kind')
  switch (kind) {
    case 'market': {
      const change = whole(body, 'change')
      const validUntil = time(body, 'validUntil')
      return take(timings.entryMs, () => book.trade(clientId, 'market', symbol, change, validUntil))
    }
    case 'stop': {
      const [positionId, price] = [whole(body, 'positionId'), whole(body, 'price')]
      return take(timings.stopMs, () => book.stop(clientId, symbol, positionId, price))
    }
    case 'close': {
      const positionId = whole(body, 'positionId')
      return take(timings.closeMs, () => book.close(clientId, symbol, positionId))
    }
    default:
      throw new BadRequestError('kind must be market, stop or close')
  }
}

async function take(totalMs: number, effect: () => Promise<Order>): Promise<Answer> {
  await sleep(totalMs * BEFORE)
  const order = await effect()
  await sleep(totalMs * (1 - BEFORE))
  return { status: order.status === 'refused' ? 422 : 200, body: order }
}

async function manualTrade(book: Book, body: Record<string, unknown>): Promise<Answer> {
  const side = text(body, 'side')
  if (side !== 'buy' && side !== 'sell') throw new BadRequestError('side must be buy or sell')
  const quantity = Math.abs(whole(body, 'quantity'))
  const change = side === 'buy' ? quantity : -quantity
  const order = await book.trade(`manual-${randomUUID()}`, 'manual', text(body, 'symbol'), change)
  return { status: order.status === 'refused' ? 422 : 200, body: order }
}

function adjust(dice: FaultDice, method: string | undefined, body: Record<string, unknown>): Answer {
  if (method === 'POST') {
    const faults = readFaults(body)
    if (typeof faults === 'string') throw new BadRequestError(faults)
    dice.set(faults)
  }
  return { status: 200, body: { ...dice.faults, struck: dice.struck } }
}

async function readBody(request: IncomingMessage): Promise<Record<string, unknown>> {
  const pieces: Buffer[] = []
  let bytes = 0
  for await (const piece of request as AsyncIterable<Buffer>) {
    bytes += piece.length
    if (bytes > BODY_LIMIT_BYTES) throw new BadRequestError('the body is too large')
    pieces.push(piece)
  }
  let parsed: unknown
  try {
    parsed = JSON.parse(Buffer.concat(pieces).toString())
  } catch {
    throw new BadRequestError('the body is no JSON')
  }
  if (typeof parsed !== 'object' || parsed === null) throw new BadRequestError('the body must be an object')
  return parsed as Record<string, unknown>
}

function text(body: Record<string, unknown>, name: string): string {
  const value = body[name]
  if (typeof value === 'string' && value !== '' && value.length <= 100) return value
  throw new BadRequestError(`${name} must be a text`)
}

function whole(body: Record<string, unknown>, name: string): number {
  const value = body[name]
  if (typeof value === 'number' && Number.isSafeInteger(value) && value !== 0) return value
  throw new BadRequestError(`${name} must be a whole number, not 0`)
}

function time(body: Record<string, unknown>, name: string): Date | undefined {
  if (body[name] === undefined) return undefined
  const value = new Date(text(body, name))
  if (!Number.isNaN(value.getTime())) return value
  throw new BadRequestError(`${name} must be a time as of ISO 8601`)
}

function send(response: ServerResponse, { status, body }: Answer): void {
  if (response.destroyed) return
  const bytes = Buffer.from(JSON.stringify(body))
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': bytes.length })
  response.end(bytes)
}
