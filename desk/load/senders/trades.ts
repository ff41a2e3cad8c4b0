import { randomUUID } from 'node:crypto'
import { type Found, Memory } from '../memory.ts'
import { TRADES } from '../load.sql.ts'
import { names, type Sender, type SenderContext, UniqueNumbers } from './sender.ts'

/** Trades: the price is the mark, so that each is known again in the table. */
export function tradeSender({ client, random, contention, prefix }: SenderContext): Sender {
  const memory = new Memory('trade')
  const prices = new UniqueNumbers()
  const hot = names(`${prefix}-hot-`, 2)
  const cold = names(`${prefix}-`, 40)
  return {
    system: 'trades',
    weight: 25,
    prepare: async () => {},
    async send() {
      const price = prices.next()
      const outcome = await client.post('trades', {
        path: `/portfolios/${random.pick(random.chance(contention) ? hot : cold)}/trades`,
        idempotencyKey: randomUUID(),
        body: {
          symbol: random.pick(['ACME', 'BOLT', 'CRUX']),
          side: random.pick(['buy', 'sell']),
          quantity: random.whole(1, 50),
          price,
        },
      })
      memory.remember(String(price), outcome, outcome.kind === 'acknowledged' ? String(outcome.body['id']) : undefined)
    },
    compare: async (pool) => [memory.compare((await pool.query<Found>(TRADES, [prefix])).rows)],
  }
}
