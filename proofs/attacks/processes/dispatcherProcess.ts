/**
 * A dispatcher to be killed, stopped and cut off. Its sink is the process that started it: each batch goes there and counts as sent
 * when it is answered. Arguments: driver, url, ttl in milliseconds, number of shards; how many drains at once, one after the other, where
 * it is to drain and not to run.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Drained } from 'pg-lockstep'
import { type DriverName, openClient } from '../client.ts'

/** A batch on its way to the parent. */
export interface SentBatch {
  readonly batch: number
  readonly events: readonly (readonly [key: string, seq: number, id: string, mark: string])[]
}

/** How a call of drain() ended. */
export interface EndedDrain {
  readonly maxEvents: number
  readonly drained: Drained | undefined
  /** The code of its error. */
  readonly failed: string | undefined
}

/** Of a call of drain(): each ends by one of them now and then. */
const MAX_MS = 500
const MAX_EVENTS = 300
/** After one that failed, as the next call of cron. */
const AGAIN_MS = 100

const [driver, url, ttl, shards, drains] = process.argv.slice(2) as [DriverName, string, string, string, string?]
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

async function drainAgainAndAgain(): Promise<void> {
  while (!stop.signal.aborted) {
    const maxEvents = Math.ceil(Math.random() * MAX_EVENTS)
    const ended = await dispatcher.drain({ maxMs: MAX_MS, maxEvents, signal: stop.signal }).then(
      (drained) => ({ maxEvents, drained, failed: undefined }),
      (error: unknown) => ({
        maxEvents,
        drained: undefined,
        failed: (error as { code?: string }).code ?? String(error),
      }),
    )
    process.send?.(ended satisfies EndedDrain)
    if (ended.failed !== undefined) await sleep(AGAIN_MS)
  }
}

if (drains === undefined) await dispatcher.run({ signal: stop.signal })
else await Promise.all(Array.from({ length: Number(drains) }, drainAgainAndAgain))
await client.close()
process.disconnect()
