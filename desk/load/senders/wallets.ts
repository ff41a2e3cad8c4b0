import { randomUUID } from 'node:crypto'
import { BIDS, DEPOSITS } from '../load.sql.ts'
import { type Found, Memory } from '../memory.ts'
import { must, names, type Sender, type SenderContext, UniqueNumbers } from './sender.ts'

/** Every bid is higher than all before it, if it comes in time; one in ten is far too low. */
const HIGH = 1_000_000

/** Bids and deposits: the amount is the mark. */
export function walletSender({ client, random, contention, prefix }: SenderContext): Sender {
  const bids = new Memory('bid')
  const deposits = new Memory('deposit')
  const amounts = new UniqueNumbers()
  const wallets = names(`${prefix}-`, 12)
  const poor = `${prefix}-poor`
  const hot = `${prefix}-hot`
  const cold: string[] = []
  let auctions = 0

  async function openAuction(): Promise<void> {
    const id = `${prefix}-${auctions++}`
    await must(client, 'wallets', '/auctions', { id, reserve: 1 })
    cold.push(id)
  }

  async function deposit(wallet: string, amount: number): Promise<void> {
    const outcome = await client.post('wallets', {
      path: `/wallets/${wallet}/deposits`,
      idempotencyKey: randomUUID(),
      body: { amount },
    })
    deposits.remember(String(amount), outcome)
  }

  async function closeOne(): Promise<void> {
    const [closing] = cold.splice(random.whole(0, cold.length - 1), 1)
    await openAuction()
    await client.post('wallets', { path: `/auctions/${closing}/close`, idempotencyKey: randomUUID() })
  }

  return {
    system: 'wallets',
    weight: 15,
    async prepare() {
      await Promise.all([...wallets, poor].map((id) => must(client, 'wallets', '/wallets', { id })))
      // More than all bids of a run together.
      await Promise.all(wallets.map((id, index) => deposit(id, 10_000_000_000 + index)))
      await must(client, 'wallets', '/auctions', { id: hot, reserve: 1 })
      for (let index = 0; index < 15; index++) await openAuction()
    },
    async send() {
      const kind = random.next()
      if (kind < 0.15) return deposit(random.pick(wallets), amounts.next())
      if (kind < 0.18 && cold.length > 5) return closeOne()
      const auction = random.chance(contention) ? hot : random.pick(cold)
      const amount = amounts.next() + (random.chance(0.9) ? HIGH : 0)
      const outcome = await client.post('wallets', {
        path: `/auctions/${auction}/bids`,
        idempotencyKey: randomUUID(),
        body: { wallet: random.chance(0.05) ? poor : random.pick(wallets), amount },
      })
      bids.remember(String(amount), outcome, outcome.kind === 'acknowledged' ? String(outcome.body['id']) : undefined)
    },
    compare: async (pool) => [
      bids.compare((await pool.query<Found>(BIDS, [prefix])).rows),
      deposits.compare((await pool.query<Found>(DEPOSITS, [prefix])).rows),
    ],
  }
}
