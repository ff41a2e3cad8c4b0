/**
 * Trades into another PostgreSQL database, with an effect exactly once.
 *
 * The idea: a trade and the news of it are written in one transaction. A dispatcher takes the news to the database of the book-keeper and
 * applies it there, in the transaction in which the book-keeper's inbox moves: the broker, the consumer loop and the inbox are one. One
 * portfolio is closed there: its trades wait until it is open, the others continue. In the end everything is sent once more, as by a
 * dispatcher that has lost its memory: nothing counts twice.
 */
import pg from 'pg'
import { EventRefusedError, key, Lockstep } from 'pg-lockstep'
import { postgresSink } from 'pg-lockstep/postgres-sink'

interface Trade {
  readonly id: number
  readonly quantity: number
}

export interface PostgresSinkResult {
  /** The numbers of each portfolio's events, in the order in which they were booked. */
  readonly booked: Readonly<Record<string, readonly number[]>>
  readonly positions: Readonly<Record<string, number>>
  /** Whether the positions are the sums of the trades. */
  readonly agree: boolean
  /** How many events came again, and were not booked again. */
  readonly duplicates: number
  /** How often an event was refused because its portfolio was closed. */
  readonly refusals: number
}

const PORTFOLIOS = ['growth', 'income', 'cash']
const TRADES = 60

const HERE = 'CREATE TABLE sink_trades (id int PRIMARY KEY, portfolio text NOT NULL, quantity int NOT NULL)'
const THERE = `
  CREATE TABLE sink_positions (portfolio text PRIMARY KEY, quantity int NOT NULL DEFAULT 0, open boolean NOT NULL);
  INSERT INTO sink_positions (portfolio, open) VALUES ('growth', true), ('income', true), ('cash', false);
  CREATE TABLE sink_bookings (place bigserial PRIMARY KEY, portfolio text NOT NULL, number int NOT NULL)`
const TRADE = 'INSERT INTO sink_trades VALUES ($1, $2, $3)'
const BOOK = 'UPDATE sink_positions SET quantity = quantity + $2 WHERE portfolio = $1 AND open'
const NOTE = 'INSERT INTO sink_bookings (portfolio, number) VALUES ($1, $2)'
const OPEN = 'UPDATE sink_positions SET open = true WHERE portfolio = $1'
const SUMS = 'SELECT portfolio, sum(quantity)::int AS quantity FROM sink_trades GROUP BY portfolio'
const POSITIONS = 'SELECT portfolio, quantity FROM sink_positions'
const BOOKINGS = 'SELECT portfolio, number FROM sink_bookings ORDER BY place'

/** `pool`: the database with the outbox. `address`: the url of the other one. */
export async function run(pool: pg.Pool, address: string): Promise<PostgresSinkResult> {
  const here = new Lockstep<{ trades: Trade }>(pool)
  const otherPool = new pg.Pool({ connectionString: address, max: 8 })
  const there = new Lockstep(otherPool)
  await Promise.all([here.migrate(), there.migrate()])
  await Promise.all([pool.query(HERE), otherPool.query(THERE)])
  const refusals: string[] = []

  const sink = postgresSink({
    lockstep: there,
    consumer: 'book-keeper',
    async handle(tx, event) {
      const { quantity } = event.payload as Trade
      const { rowCount } = await tx.query(BOOK, [event.key, quantity])
      if (rowCount !== 1) {
        refusals.push(event.key)
        throw new EventRefusedError(`the portfolio ${event.key} is closed`)
      }
      // Nothing is read from it: it goes together with COMMIT.
      await tx.queryAtCommit(NOTE, [event.key, event.seq])
    },
  })

  const stop = new AbortController()
  const dispatching = here.outbox
    .dispatcher({ sink, attempts: 1000, backoffMs: { first: 20, longest: 50 } })
    .run({ signal: stop.signal })
  await Promise.all(
    Array.from({ length: TRADES }, async (_, id) => {
      const portfolio = PORTFOLIOS[id % PORTFOLIOS.length] as string
      await here.transaction({ lock: key`Portfolio:${portfolio}` }, async (tx) => {
        await tx.query(TRADE, [id, portfolio, id])
        await tx.enqueue({ topic: 'trades', key: portfolio, payload: { id, quantity: id } })
      })
    }),
  )
  const booked = async (count: number): Promise<void> => {
    while (((await otherPool.query(BOOKINGS)).rowCount ?? 0) < count) await new Promise((done) => setTimeout(done, 10))
  }
  await booked((TRADES / PORTFOLIOS.length) * 2)
  while (refusals.length === 0) await new Promise((done) => setTimeout(done, 10))
  await otherPool.query(OPEN, ['cash'])
  await booked(TRADES)
  stop.abort()
  await dispatching

  // Everything once more. It stops at the first event that is not taken; the inbox has seen them all.
  const { events: duplicates } = await here.outbox.replay({ sink, topic: 'trades' })

  const numbers: Record<string, number[]> = {}
  const { rows: bookings } = await otherPool.query<{ portfolio: string; number: number }>(BOOKINGS)
  for (const { portfolio, number } of bookings) (numbers[portfolio] ??= []).push(number)
  const { rows: sums } = await pool.query<{ portfolio: string; quantity: number }>(SUMS)
  const { rows } = await otherPool.query<{ portfolio: string; quantity: number }>(POSITIONS)
  const positions = Object.fromEntries(rows.map(({ portfolio, quantity }) => [portfolio, quantity]))
  await Promise.all([here.close(), there.close()])
  await otherPool.end()
  return {
    booked: numbers,
    positions,
    agree: sums.every(({ portfolio, quantity }) => positions[portfolio] === quantity),
    duplicates,
    refusals: refusals.length,
  }
}
