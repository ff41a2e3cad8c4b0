/**
 * Trades of portfolios through Redis Streams, each counted exactly once.
 *
 * The idea: a trade and the news of it are written in one transaction. A dispatcher appends the news to a Redis stream for each
 * portfolio, and the number of an event is the id of its entry. So the book-keeper needs no cursor in Redis: it reads from the position
 * of its inbox on, which moves in the transaction in which a position is booked. What it reads twice, it counts once.
 */
import { Redis } from 'ioredis'
import type pg from 'pg'
import { key, Lockstep } from 'pg-lockstep'
import { readRedisEntry, redisSink, redisStreamName } from 'pg-lockstep/redis'

interface Trade {
  readonly id: number
  readonly quantity: number
}

export interface RedisResult {
  /** The numbers of each portfolio's events, in the order in which they were booked. */
  readonly booked: Readonly<Record<string, readonly number[]>>
  /** Whether the positions are the sums of the trades. */
  readonly agree: boolean
  /** How often an entry that was booked already was read again, and was not counted again. */
  readonly duplicates: number
}

const PORTFOLIOS = ['growth', 'income', 'cash']
const TRADES = 60

const TABLES = `
  CREATE TABLE redis_trades (id int PRIMARY KEY, portfolio text NOT NULL, quantity int NOT NULL);
  CREATE TABLE redis_positions (portfolio text PRIMARY KEY, quantity int NOT NULL)`
const TRADE = 'INSERT INTO redis_trades VALUES ($1, $2, $3)'
const BOOK = `
  INSERT INTO redis_positions AS p VALUES ($1, $2)
      ON CONFLICT (portfolio) DO UPDATE SET quantity = p.quantity + EXCLUDED.quantity`
const COMPARE = `
  SELECT p.quantity = sum(t.quantity) AS agrees
    FROM redis_positions p JOIN redis_trades t USING (portfolio) GROUP BY p.portfolio, p.quantity`

export async function run(pool: pg.Pool, address: string): Promise<RedisResult> {
  const lockstep = new Lockstep<{ trades: Trade }>(pool)
  await lockstep.migrate()
  await pool.query(TABLES)
  const client = new Redis(`redis://${address}`)
  const stop = new AbortController()
  const dispatching = lockstep.outbox.dispatcher({ sink: redisSink({ client }) }).run({ signal: stop.signal })

  const bookKeeper = lockstep.inbox.consumer('book-keeper')
  const booked: Record<string, number[]> = {}
  let duplicates = 0

  /** Reads what comes behind an entry, and books it. Gives the id of the last one that it has seen. */
  async function read(reader: Redis, portfolio: string, after: string): Promise<string> {
    const name = redisStreamName({ topic: 'trades', key: portfolio })
    const streams = await reader.xreadBuffer('COUNT', 10, 'BLOCK', 200, 'STREAMS', name, after)
    const entries = streams?.[0]?.[1] ?? []
    for (const [, fields] of entries) {
      const event = readRedisEntry<Trade>(fields)
      const verdict = await bookKeeper.handle(event, {}, async (tx, { payload }) => {
        await tx.query(BOOK, [portfolio, payload.quantity])
      })
      if (verdict === 'duplicate') duplicates++
      else (booked[portfolio] ??= []).push(event.seq)
    }
    return entries.at(-1)?.[0].toString() ?? after
  }

  /** The loop of a book-keeper: the inbox knows where it was, also if its process has ended. */
  async function keepBooks(portfolio: string, until: number): Promise<void> {
    // A blocked read holds its connection up.
    const reader = client.duplicate()
    const position = await bookKeeper.position({ topic: 'trades', key: portfolio })
    let after = `${position?.seq ?? 0}-0`
    while ((booked[portfolio]?.length ?? 0) < until) after = await read(reader, portfolio, after)
    reader.disconnect()
  }

  const keeping = PORTFOLIOS.map((portfolio) => keepBooks(portfolio, TRADES / PORTFOLIOS.length))
  await Promise.all(
    Array.from({ length: TRADES }, async (_, id) => {
      const portfolio = PORTFOLIOS[id % PORTFOLIOS.length] as string
      await lockstep.transaction({ lock: key`Portfolio:${portfolio}` }, async (tx) => {
        await tx.query(TRADE, [id, portfolio, id])
        await tx.enqueue({ topic: 'trades', key: portfolio, payload: { id, quantity: id } })
      })
    }),
  )
  await Promise.all(keeping)
  // A book-keeper that has forgotten where it was reads the first ten again: nothing is counted twice.
  await read(client, 'growth', '0-0')

  stop.abort()
  await dispatching
  const { rows } = await pool.query<{ agrees: boolean }>(COMPARE)
  client.disconnect()
  await lockstep.close()
  return { booked, agree: rows.length === PORTFOLIOS.length && rows.every(({ agrees }) => agrees), duplicates }
}
