/**
 * Trades through RabbitMQ, each booked exactly once.
 *
 * The idea: a trade and the news of it are written in one transaction. A dispatcher publishes the news and waits until RabbitMQ has
 * confirmed it. The book-keeper acknowledges a message only when the transaction has committed in which the trade was booked and its
 * inbox moved. Here it "crashes" now and then after the commit and before the acknowledgement: those come again, and count once.
 */
import { connect, type ConsumeMessage } from 'amqplib'
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { rabbitmqSink } from 'pg-lockstep/rabbitmq'
import { readMessage } from 'pg-lockstep/sinks'

interface Trade {
  readonly id: number
  readonly quantity: number
}

export interface RabbitmqResult {
  /** The numbers of each portfolio's events, in the order in which they were booked. */
  readonly booked: Readonly<Record<string, readonly number[]>>
  readonly positions: Readonly<Record<string, number>>
  /** How often a trade came that had been booked already. */
  readonly again: number
}

const PORTFOLIOS = ['growth', 'income', 'cash']
const TRADES = 30
const EXCHANGE = 'trades-of-portfolios'
const QUEUE = 'book-keeper'

const TABLES = `
  CREATE TABLE rabbitmq_trades (id int PRIMARY KEY, portfolio text NOT NULL, quantity int NOT NULL);
  CREATE TABLE rabbitmq_positions (portfolio text PRIMARY KEY, quantity int NOT NULL)`
const TRADE = 'INSERT INTO rabbitmq_trades VALUES ($1, $2, $3)'
const BOOK = `
  INSERT INTO rabbitmq_positions AS p VALUES ($1, $2)
      ON CONFLICT (portfolio) DO UPDATE SET quantity = p.quantity + EXCLUDED.quantity`

export async function run(pool: pg.Pool, address: string): Promise<RabbitmqResult> {
  const url = `amqp://guest:guest@${address}`
  const lockstep = new Lockstep<{ trades: Trade }>(pool)
  await lockstep.migrate()
  await pool.query(TABLES)

  // The consumer: it owns the queue. One of several processes gets the messages, so that they keep their order.
  const connection = await connect(url)
  const channel = await connection.createChannel()
  await channel.assertExchange(EXCHANGE, 'topic', { durable: true })
  await channel.assertQueue(QUEUE, { durable: true, arguments: { 'x-single-active-consumer': true } })
  await channel.bindQueue(QUEUE, EXCHANGE, 'trades')
  await channel.prefetch(20)

  const bookKeeper = lockstep.inbox.consumer('book-keeper')
  const booked: Record<string, number[]> = {}
  let [again, crashes] = [0, 0]
  let allBooked: () => void
  const done = new Promise<void>((resolve) => (allBooked = resolve))

  async function book(message: ConsumeMessage): Promise<void> {
    const event = readMessage<Trade>(message.properties.headers ?? {}, message.content)
    try {
      const verdict = await bookKeeper.handle(event, {}, async (tx, { payload }) => {
        await tx.query(BOOK, [event.key, payload.quantity])
      })
      if (verdict === 'first') (booked[event.key] ??= []).push(event.seq)
      else again++
    } catch {
      // Nothing was written. Back to its place: what comes before it in its stream, the inbox asks for (InboxGapError).
      channel.nack(message, false, true)
      return
    }
    if (!message.fields.redelivered && ++crashes % 7 === 0) {
      // As if the process had ended here: RabbitMQ gives the message out again.
      channel.nack(message, false, true)
      return
    }
    channel.ack(message)
    if (Object.values(booked).flat().length === TRADES) allBooked()
  }

  // One after the other: what was given out together is handled in its order.
  let line = Promise.resolve()
  const { consumerTag } = await channel.consume(QUEUE, (message) => {
    if (message !== null) line = line.then(() => book(message))
  })

  // The producer.
  const stop = new AbortController()
  const sink = rabbitmqSink({ connect: () => connect(url), exchange: EXCHANGE })
  const dispatching = lockstep.outbox.dispatcher({ sink }).run({ signal: stop.signal })
  for (let id = 0; id < TRADES; id++) {
    const portfolio = PORTFOLIOS[id % PORTFOLIOS.length] as string
    await lockstep.transaction({ lock: key`Portfolio:${portfolio}` }, async (tx) => {
      await tx.query(TRADE, [id, portfolio, id])
      await tx.enqueue({ topic: 'trades', key: portfolio, payload: { id, quantity: id } })
    })
  }

  await done
  stop.abort()
  await dispatching
  await channel.cancel(consumerTag)
  await line
  await connection.close()
  const { rows } = await pool.query<{ portfolio: string; quantity: number }>('SELECT * FROM rabbitmq_positions')
  await lockstep.close()
  const positions = Object.fromEntries(rows.map(({ portfolio, quantity }) => [portfolio, quantity]))
  return { booked, positions, again }
}
