import { randomUUID } from 'node:crypto'
import { type Found, Memory } from '../memory.ts'
import { TRANSFERS } from '../load.sql.ts'
import { must, names, type Sender, type SenderContext } from './sender.ts'

/** Transfers: many pay into hot accounts, some have nothing to pay with. */
export function transferSender({ client, random, contention, prefix }: SenderContext): Sender {
  const memory = new Memory('transfer')
  const hot = names(`${prefix}-hot-`, 2)
  const cold = names(`${prefix}-`, 30)
  const poor = `${prefix}-poor`
  return {
    system: 'transfers',
    weight: 30,
    async prepare() {
      const open = (id: string, openingBalance: number, isHot: boolean): Promise<void> =>
        must(client, 'transfers', '/accounts', { id, openingBalance, hot: isHot })
      await Promise.all([
        ...hot.map((id) => open(id, 0, true)),
        ...cold.map((id) => open(id, 10_000_000, false)),
        open(poor, 0, false),
      ])
    },
    async send() {
      const from = random.chance(0.05) ? poor : random.pick(cold)
      const to = random.pick((random.chance(contention) ? hot : cold).filter((id) => id !== from))
      const request = randomUUID()
      const outcome = await client.post('transfers', {
        path: '/transfers',
        idempotencyKey: request,
        body: { from, to, amount: random.whole(1, 500) },
      })
      memory.remember(request, outcome, outcome.kind === 'acknowledged' ? String(outcome.body['id']) : undefined)
    },
    compare: async (pool) => [memory.compare((await pool.query<Found>(TRANSFERS, [prefix])).rows)],
  }
}
