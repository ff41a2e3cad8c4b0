import { randomUUID } from 'node:crypto'
import { type Found, Memory } from '../memory.ts'
import { STEPS } from '../load.sql.ts'
import { must, type Sender, type SenderContext } from './sender.ts'

interface Slot {
  /** An instance that has ended is followed by the next one. */
  generation: number
  ready: Promise<string>
}

/** Steps of instances: hot ones are asked for by many at once. */
export function instanceSender({ client, random, contention, prefix }: SenderContext): Sender {
  const memory = new Memory('step')
  const slots: Slot[] = []

  function renew(slot: Slot, index: number): void {
    slot.generation++
    const id = `${prefix}-${index}-${slot.generation}`
    slot.ready = must(client, 'instances', '/instances', { id }).then(() => id)
    // The caller that awaits it receives the error.
    slot.ready.catch(() => undefined)
  }

  return {
    system: 'instances',
    weight: 15,
    async prepare() {
      for (let index = 0; index < 30; index++) {
        const slot: Slot = { generation: 0, ready: Promise.resolve('') }
        slots.push(slot)
        renew(slot, index)
      }
      await Promise.all(slots.map(({ ready }) => ready))
    },
    async send() {
      const index = random.chance(contention) ? random.whole(0, 1) : random.whole(2, slots.length - 1)
      const slot = slots[index] as Slot
      const { generation } = slot
      const id = await slot.ready.catch(() => undefined)
      if (id === undefined) {
        if (slot.generation === generation) renew(slot, index)
        return
      }
      const request = randomUUID()
      const outcome = await client.post('instances', { path: `/instances/${id}/process/next`, idempotencyKey: request })
      const acknowledged = outcome.kind === 'acknowledged'
      memory.remember(request, outcome, acknowledged ? String(outcome.body['step']) : undefined)
      const ended = acknowledged
        ? outcome.body['state'] === 'done'
        : outcome.kind === 'refused' && outcome.code === 'process-ended'
      if (ended && slot.generation === generation) renew(slot, index)
    },
    compare: async (pool) => [memory.compare((await pool.query<Found>(STEPS, [prefix])).rows)],
  }
}
