/**
 * A dispatcher to be killed, stopped and cut off. Its sink is the process that started it: each batch goes there and counts as sent
 * when it is answered. Arguments: driver, url, ttl in milliseconds, number of shards.
 */
import { type DriverName, openClient } from '../client.ts'

/** A batch on its way to the parent. */
export interface SentBatch {
  readonly batch: number
  readonly events: readonly (readonly [key: string, seq: number, id: string, mark: string])[]
}

const [driver, url, ttl, shards] = process.argv.slice(2) as [DriverName, string, string, string]
const client = openClient(driver, url, { poolSize: 5, application: 'dispatcher' })

let batches = 0
const answered = new Map<number, () => void>()
const stop = new AbortController()

process.on('message', (message: number | 'stop') => {
  if (message === 'stop') stop.abort()
  else answered.get(message)?.()
})

const dispatcher = client.lockstep.outbox.dispatcher({
  ttlMs: Number(ttl),
  shards: Number(shards),
  batch: 200,
  async sink(events) {
    const batch = ++batches
    const answer = new Promise<void>((resolve) => answered.set(batch, resolve))
    process.send?.({
      batch,
      events: events.map(({ topic, key, seq, id, payload }) => [
        `${topic}/${key}`,
        seq,
        id,
        (payload as { mark: string }).mark,
      ]),
    } satisfies SentBatch)
    await answer
    answered.delete(batch)
  },
})
await dispatcher.run({ signal: stop.signal })
await client.close()
process.disconnect()
