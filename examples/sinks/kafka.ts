/**
 * Trades through Kafka to a book-keeper, with an effect exactly once.
 *
 * The idea: a trade and the news of it are written in one transaction. A dispatcher takes the news to Kafka, where the portfolio is the
 * message's key, so that its trades stay in one partition and in order. The book-keeper's consumer gives every message to its inbox,
 * which moves in the transaction in which a position does: what comes again counts once. Here everything comes again, as after a crash
 * before the offsets were committed.
 */
import { Kafka, logLevel } from 'kafkajs'
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { kafkaSink } from 'pg-lockstep/kafka'
import { readMessage } from 'pg-lockstep/sinks'

interface Trade {
  readonly id: number
  readonly quantity: number
}

export interface KafkaResult {
  /** The numbers of each portfolio's events, in the order in which they were handled. */
  readonly handled: Readonly<Record<string, readonly number[]>>
  readonly positions: Readonly<Record<string, number>>
  /** Whether the positions are the sums of the trades. */
  readonly agree: boolean
  /** How many messages came again, and were not counted again. */
  readonly duplicates: number
}

const PORTFOLIOS = ['growth', 'income', 'cash']
const TRADES = 60

const TABLES = `
  CREATE TABLE kafka_trades (id int PRIMARY KEY, portfolio text NOT NULL, quantity int NOT NULL);
  CREATE TABLE kafka_positions (portfolio text PRIMARY KEY, quantity int NOT NULL)`
const TRADE = 'INSERT INTO kafka_trades VALUES ($1, $2, $3)'
const BOOK = `
  INSERT INTO kafka_positions AS p VALUES ($1, $2)
      ON CONFLICT (portfolio) DO UPDATE SET quantity = p.quantity + EXCLUDED.quantity`
const COMPARE = `
  SELECT p.portfolio, p.quantity, p.quantity = sum(t.quantity) AS agrees
    FROM kafka_positions p JOIN kafka_trades t USING (portfolio) GROUP BY p.portfolio`

export async function run(pool: pg.Pool, address: string): Promise<KafkaResult> {
  const lockstep = new Lockstep<{ trades: Trade }>(pool)
  await lockstep.migrate()
  await pool.query(TABLES)
  // Kafka gives up before the sink does, and tries nothing again by itself: that is the dispatcher's business.
  const kafka = new Kafka({ brokers: [address], requestTimeout: 8000, logLevel: logLevel.NOTHING })
  const producer = kafka.producer({ retry: { retries: 0 } })
  const admin = kafka.admin()
  const consumer = kafka.consumer({ groupId: 'book-keeper', maxWaitTimeInMs: 50 })
  await Promise.all([producer.connect(), admin.connect(), consumer.connect()])

  const stop = new AbortController()
  const dispatching = lockstep.outbox.dispatcher({ sink: kafkaSink({ producer, admin }) }).run({ signal: stop.signal })
  await Promise.all(
    Array.from({ length: TRADES }, async (_, id) => {
      const portfolio = PORTFOLIOS[id % PORTFOLIOS.length] as string
      await lockstep.transaction({ lock: key`Portfolio:${portfolio}` }, async (tx) => {
        await tx.query(TRADE, [id, portfolio, id])
        await tx.enqueue({ topic: 'trades', key: portfolio, payload: { id, quantity: id } })
      })
    }),
  )

  const bookKeeper = lockstep.inbox.consumer('book-keeper')
  const handled: Record<string, number[]> = {}
  const partitions = new Set<number>()
  let [first, duplicates] = [0, 0]
  await new Promise<void>((resolve, reject) => {
    const consume = async (): Promise<void> => {
      await consumer.subscribe({ topic: 'trades', fromBeginning: true })
      await consumer.run({
        // Its offset is committed after this has returned: a message that was not handled comes again.
        eachMessage: async ({ topic, partition, message }) => {
          partitions.add(partition)
          const event = readMessage<Trade>(message.headers ?? {}, message.value)
          const verdict = await bookKeeper.handle(event, {}, async (tx, { payload }) => {
            await tx.query(BOOK, [event.key, payload.quantity])
          })
          if (verdict === 'first') {
            ;(handled[event.key] ??= []).push(event.seq)
            if (++first < TRADES) return
            // Everything once more.
            for (const number of partitions) consumer.seek({ topic, partition: number, offset: '0' })
          } else if (++duplicates === TRADES) resolve()
        },
      })
    }
    consume().catch(reject)
  })
  await consumer.disconnect()
  stop.abort()
  await dispatching
  await Promise.all([producer.disconnect(), admin.disconnect()])

  const { rows } = await pool.query<{ portfolio: string; quantity: number; agrees: boolean }>(COMPARE)
  await lockstep.close()
  return {
    handled,
    positions: Object.fromEntries(rows.map(({ portfolio, quantity }) => [portfolio, quantity])),
    agree: rows.every(({ agrees }) => agrees),
    duplicates,
  }
}
