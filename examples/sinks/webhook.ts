/**
 * Trades, posted to a book-keeper that has a web server.
 *
 * The idea: a trade and the news of it are written in one transaction. A dispatcher posts the news, signed, one at a time for each
 * portfolio. The book-keeper checks the signature, and books a trade in the transaction in which its inbox moves; only then does it
 * answer. Some of its answers are lost on the way here: those trades come again, and are not booked again.
 */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type pg from 'pg'
import { HistoryDivergedError, InboxGapError, key, Lockstep, WebhookUnverifiedError } from 'pg-lockstep'
import { verifyWebhook, webhookSink } from 'pg-lockstep/webhook'

interface Trade {
  readonly id: number
  readonly quantity: number
}

export interface WebhookResult {
  /** The numbers of each portfolio's events, in the order in which they were booked. */
  readonly booked: Readonly<Record<string, readonly number[]>>
  readonly positions: Readonly<Record<string, number>>
  /** How often a trade came that had been booked already. */
  readonly again: number
  /** What the book-keeper answers to a sender without the secret. */
  readonly toStrangers: number
}

const PORTFOLIOS = ['growth', 'income', 'cash']
const TRADES = 30
/** Both sides have it, from wherever they keep their secrets. */
const SECRET = `whsec_${randomBytes(32).toString('base64')}`

const TABLES = `
  CREATE TABLE webhook_trades (id int PRIMARY KEY, portfolio text NOT NULL, quantity int NOT NULL);
  CREATE TABLE webhook_positions (portfolio text PRIMARY KEY, quantity int NOT NULL)`
const TRADE = 'INSERT INTO webhook_trades VALUES ($1, $2, $3)'
const BOOK = `
  INSERT INTO webhook_positions AS p VALUES ($1, $2)
      ON CONFLICT (portfolio) DO UPDATE SET quantity = p.quantity + EXCLUDED.quantity`

export async function run(pool: pg.Pool): Promise<WebhookResult> {
  const lockstep = new Lockstep<{ trades: Trade }>(pool)
  await lockstep.migrate()
  await pool.query(TABLES)
  const booked: Record<string, number[]> = {}
  const consumer = lockstep.inbox.consumer('book-keeper')
  const stop = new AbortController()
  let [count, again] = [0, 0]

  /** The status to answer with. It says what the sender does next: 2xx nothing, 4xx waits for a person, 425 and 5xx come again. */
  async function take(headers: Record<string, string | string[] | undefined>, body: Buffer): Promise<number> {
    try {
      const event = verifyWebhook<Trade>(headers, body, SECRET)
      const verdict = await consumer.handle(event, {}, async (tx, { payload }) => {
        await tx.query(BOOK, [event.key, payload.quantity])
      })
      if (verdict === 'first') {
        ;(booked[event.key] ??= []).push(event.seq)
        if (++count === TRADES) stop.abort()
      } else again++
      return 204
    } catch (error) {
      if (error instanceof WebhookUnverifiedError) return 401
      if (error instanceof InboxGapError) return 425
      if (error instanceof HistoryDivergedError) return 409
      return 500
    }
  }

  let answers = 0
  const bookKeeper = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      void take(request.headers, Buffer.concat(chunks)).then((status) => {
        // Every fifth answer does not arrive.
        if (status === 204 && ++answers % 5 === 0) request.socket.destroy()
        else response.writeHead(status).end()
      })
    })
  })
  const url = await listening(bookKeeper)

  const sink = webhookSink({ url, secret: SECRET })
  const dispatching = lockstep.outbox.dispatcher({ sink, backoffMs: { first: 20 } }).run({ signal: stop.signal })
  for (let id = 0; id < TRADES; id++) {
    const portfolio = PORTFOLIOS[id % PORTFOLIOS.length] as string
    await lockstep.transaction({ lock: key`Portfolio:${portfolio}` }, async (tx) => {
      await tx.query(TRADE, [id, portfolio, id])
      await tx.enqueue({ topic: 'trades', key: portfolio, payload: { id, quantity: id } })
    })
  }
  await dispatching
  const { status: toStrangers } = await fetch(url, { method: 'POST', body: '{"id":1,"quantity":1000000}' })
  bookKeeper.close()
  bookKeeper.closeAllConnections()
  const { rows } = await pool.query<{ portfolio: string; quantity: number }>('SELECT * FROM webhook_positions')
  await lockstep.close()
  const positions = Object.fromEntries(rows.map(({ portfolio, quantity }) => [portfolio, quantity]))
  return { booked, positions, again, toStrangers }
}

async function listening(server: Server): Promise<string> {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/trades`
}
