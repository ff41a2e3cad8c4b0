/**
 * Trades of a portfolio, delivered in the order in which they were made.
 *
 * The idea: a trade and the news of it are written in one transaction, so that there is never one without the other. A dispatcher takes
 * the events to their consumer, here to a book-keeper that keeps positions in a table of its own. The book-keeper's inbox is moved in the
 * transaction in which a position is: what comes twice counts once, and what comes too early is refused. One trade is refused at first:
 * its portfolio waits for it, the others continue.
 */
import type pg from 'pg'
import { key, Lockstep, type OutboxEvent, perEvent } from 'pg-lockstep'

interface Trade {
  readonly id: number
  readonly quantity: number
}

export interface TradesInOrderResult {
  /** The numbers of each portfolio's events, in the order in which they arrived. */
  readonly arrived: Readonly<Record<string, readonly number[]>>
  readonly positions: Readonly<Record<string, number>>
  /** Whether the positions are the sums of the trades. */
  readonly agree: boolean
  /** How often a trade that had arrived already came again, and was not counted again. */
  readonly duplicates: number
}

const PORTFOLIOS = ['growth', 'income', 'cash']
const TRADES = 60

const TABLES = `
  CREATE TABLE ordered_trades (id int PRIMARY KEY, portfolio text NOT NULL, quantity int NOT NULL);
  CREATE TABLE ordered_positions (portfolio text PRIMARY KEY, quantity int NOT NULL)`
const TRADE = 'INSERT INTO ordered_trades VALUES ($1, $2, $3)'
const BOOK = `
  INSERT INTO ordered_positions AS p VALUES ($1, $2)
      ON CONFLICT (portfolio) DO UPDATE SET quantity = p.quantity + EXCLUDED.quantity`
const COMPARE = `
  SELECT p.portfolio, p.quantity, p.quantity = sum(t.quantity) AS agrees
    FROM ordered_positions p JOIN ordered_trades t USING (portfolio) GROUP BY p.portfolio`

export async function run(pool: pg.Pool): Promise<TradesInOrderResult> {
  const lockstep = new Lockstep<{ trades: Trade }>(pool)
  await lockstep.migrate()
  await pool.query(TABLES)
  const arrived: Record<string, number[]> = {}
  const stop = new AbortController()
  const bookKeeper = lockstep.inbox.consumer('book-keeper')
  let [seen, duplicates, refusals] = [0, 0, 2]

  async function book(event: OutboxEvent): Promise<void> {
    if (event.key === 'cash' && event.seq === 3 && refusals-- > 0)
      throw new Error('the book-keeper is not ready for it')
    const trade = event.payload as Trade
    const verdict = await bookKeeper.handle(event, {}, async (tx) => {
      await tx.query(BOOK, [event.key, trade.quantity])
    })
    if (verdict !== 'first') duplicates++
    else {
      ;(arrived[event.key] ??= []).push(event.seq)
      if (++seen === TRADES) stop.abort()
    }
  }

  const dispatching = lockstep.outbox
    .dispatcher({ sink: perEvent({}, book), backoffMs: { first: 20 } })
    .run({ signal: stop.signal })
  await Promise.all(
    Array.from({ length: TRADES }, async (_, id) => {
      const portfolio = PORTFOLIOS[id % PORTFOLIOS.length] as string
      await lockstep.transaction({ lock: key`Portfolio:${portfolio}` }, async (tx) => {
        await tx.query(TRADE, [id, portfolio, id])
        await tx.enqueue({ topic: 'trades', key: portfolio, payload: { id, quantity: id } })
      })
    }),
  )
  await dispatching
  const { rows } = await pool.query<{ portfolio: string; quantity: number; agrees: boolean }>(COMPARE)
  await lockstep.close()
  return {
    arrived,
    positions: Object.fromEntries(rows.map(({ portfolio, quantity }) => [portfolio, quantity])),
    agree: rows.every(({ agrees }) => agrees),
    duplicates,
  }
}
