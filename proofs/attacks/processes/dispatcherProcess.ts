/**
 * A dispatcher to be killed, stopped and cut off. Its sink is the process that started it: each batch goes there and counts as sent
 * when it is answered. Arguments: driver, url, ttl in milliseconds, number of shards; how many dispatchers run in it; the seed of what it draws; how many
 * drains at once, one after the other, where it is to drain and not to run.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Drained, OutboxEvent } from 'pg-lockstep'
import { random } from '../../seed.ts'
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
const MAX_MS = 2000
const MAX_EVENTS = 3000
/** After one that had nothing to do, or failed: as the next call of cron. */
const AGAIN_MS = 1000

const [driver, url, ttl, shards, runs, seed, drains] = process.argv.slice(2) as [
  DriverName,
  string,
  string,
  string,
  string,
  string,
  string?,
]
const client = openClient(driver, url, { poolSize: 5, application: 'dispatcher' })

let batches = 0
const answered = new Map<number, () => void>()
const stop = new AbortController()

process.on('message', (message: number | 'stop') => {
  if (message === 'stop') stop.abort()
  else answered.get(message)?.()
})

const options = {
  ttlMs: Number(ttl),
  shards: Number(shards),
  batch: 200,
  async sink(events: readonly OutboxEvent[]): Promise<void> {
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
}
const { outbox } = client.lockstep

async function drainAgainAndAgain(lane: number): Promise<void> {
  const chance = random(Number(seed), 'drains', lane)
  const dispatcher = outbox.dispatcher(options)
  while (!stop.signal.aborted) {
    const maxEvents = chance.whole(1, MAX_EVENTS)
    const ended = await dispatcher.drain({ maxMs: MAX_MS, maxEvents, signal: stop.signal }).then(
      (drained) => ({ maxEvents, drained, failed: undefined }),
      (error: unknown) => ({
        maxEvents,
        drained: undefined,
        failed: (error as { code?: string }).code ?? String(error),
      }),
    )
    process.send?.(ended satisfies EndedDrain)
    if ((ended.drained?.delivered ?? 0) === 0) await sleep(AGAIN_MS * (0.5 + chance.next()))
  }
}

if (drains === undefined) {
  const running = Array.from({ length: Number(runs) }, (_, n) =>
    outbox.dispatcher({ ...options, holder: `${process.pid}.${n}` }).run({ signal: stop.signal }),
  )
  await Promise.all(running)
} else await Promise.all(Array.from({ length: Number(drains) }, (_, lane) => drainAgainAndAgain(lane)))
await client.close()
process.disconnect()
