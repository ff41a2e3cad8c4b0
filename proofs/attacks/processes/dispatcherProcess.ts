/**
 * A dispatcher to be killed, stopped and cut off. Its sink is the process that started it: each batch goes there and counts as sent
 * when it is answered. Arguments: driver, url, ttl in milliseconds, number of shards.
 */
import { Lockstep } from 'pg-lockstep'
import pg from 'pg'
import postgres from 'postgres'

/** A batch on its way to the parent. */
export interface SentBatch {
  readonly batch: number
  readonly events: readonly (readonly [key: string, seq: number, id: string, mark: string])[]
}

const [driver, url, ttl, shards] = process.argv.slice(2) as [string, string, string, string]
const application = 'dispatcher'
const pool =
  driver === 'pg'
    ? new pg.Pool({ connectionString: url, max: 5, application_name: application })
    : postgres(url, {
        max: 5,
        onnotice: () => undefined,
        connection: { application_name: application },
        backoff: () => 0.01,
      })
const lockstep = new Lockstep(pool as pg.Pool)

let batches = 0
const answered = new Map<number, () => void>()
const stop = new AbortController()

process.on('message', (message: number | 'stop') => {
  if (message === 'stop') stop.abort()
  else answered.get(message)?.()
})

const dispatcher = lockstep.outbox.dispatcher({
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
await lockstep.close()
await pool.end()
process.disconnect()
