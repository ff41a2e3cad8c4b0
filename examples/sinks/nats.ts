/**
 * Trades of portfolios through NATS JetStream, each counted exactly once.
 *
 * The idea: a trade and the news of it are written in one transaction. A dispatcher publishes the news under a subject for each
 * portfolio, and JetStream takes a message only right behind the one before it. A book-keeper reads all portfolios through one durable
 * consumer; its inbox moves in the transaction in which a position is booked. It often loses its connection before it can acknowledge,
 * here: those messages come again, and count once.
 */
import { AckPolicy, jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect } from '@nats-io/transport-node'
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { natsSink, readNatsMessage } from 'pg-lockstep/nats'

interface Trade {
  readonly id: number
  readonly quantity: number
}

export interface NatsResult {
  /** The numbers of each portfolio's events, in the order in which they were booked. */
  readonly booked: Readonly<Record<string, readonly number[]>>
  /** Whether the positions are the sums of the trades. */
  readonly agree: boolean
  /** How often a message that was booked already came again, and was not counted again. */
  readonly duplicates: number
}

const PORTFOLIOS = ['growth', 'income', 'cash']
const TRADES = 60

const TABLES = `
  CREATE TABLE nats_trades (id int PRIMARY KEY, portfolio text NOT NULL, quantity int NOT NULL);
  CREATE TABLE nats_positions (portfolio text PRIMARY KEY, quantity int NOT NULL)`
const TRADE = 'INSERT INTO nats_trades VALUES ($1, $2, $3)'
const BOOK = `
  INSERT INTO nats_positions AS p VALUES ($1, $2)
      ON CONFLICT (portfolio) DO UPDATE SET quantity = p.quantity + EXCLUDED.quantity`
const COMPARE = `
  SELECT p.quantity = sum(t.quantity) AS agrees
    FROM nats_positions p JOIN nats_trades t USING (portfolio) GROUP BY p.portfolio, p.quantity`

export async function run(pool: pg.Pool, address: string): Promise<NatsResult> {
  const lockstep = new Lockstep<{ trades: Trade }>(pool)
  await lockstep.migrate()
  await pool.query(TABLES)
  const client = await connect({ servers: address, maxReconnectAttempts: -1 })
  const manager = await jetstreamManager(client)
  await manager.streams.add({ name: 'TRADES', subjects: ['trades.>'] })
  const stop = new AbortController()
  const sink = natsSink({ client, stream: 'TRADES' })
  const dispatching = lockstep.outbox.dispatcher({ sink }).run({ signal: stop.signal })

  const bookKeeper = lockstep.inbox.consumer('book-keeper')
  const booked: Record<string, number[]> = {}
  let [seen, duplicates] = [0, 0]

  /** The loop of a book-keeper. One message is in progress at a time: one that comes again comes before the next. */
  async function keepBooks(): Promise<void> {
    await manager.consumers.add('TRADES', {
      durable_name: 'book-keeper',
      ack_policy: AckPolicy.Explicit,
      max_ack_pending: 1,
    })
    const consumer = await jetstream(client).consumers.get('TRADES', 'book-keeper')
    const messages = await consumer.consume()
    for await (const message of messages) {
      const event = readNatsMessage<Trade>(message)
      const verdict = await bookKeeper.handle(event, {}, async (tx, { payload }) => {
        await tx.query(BOOK, [event.key, payload.quantity])
      })
      if (verdict === 'duplicate') duplicates++
      else {
        ;(booked[event.key] ??= []).push(event.seq)
        seen++
      }
      // A book-keeper that dies here has booked the trade, and gets it again.
      if (verdict === 'first' && event.seq % 5 === 0) message.nak()
      else message.ack()
      if (seen === TRADES && message.info.pending === 0 && verdict === 'duplicate') break
    }
    await messages.close()
  }

  const keeping = keepBooks()
  await Promise.all(
    Array.from({ length: TRADES }, async (_, id) => {
      const portfolio = PORTFOLIOS[id % PORTFOLIOS.length] as string
      await lockstep.transaction({ lock: key`Portfolio:${portfolio}` }, async (tx) => {
        await tx.query(TRADE, [id, portfolio, id])
        await tx.enqueue({ topic: 'trades', key: portfolio, payload: { id, quantity: id } })
      })
    }),
  )
  await keeping

  stop.abort()
  await dispatching
  const { rows } = await pool.query<{ agrees: boolean }>(COMPARE)
  await client.close()
  await lockstep.close()
  return { booked, agree: rows.length === PORTFOLIOS.length && rows.every(({ agrees }) => agrees), duplicates }
}
