import { expect, test } from 'vitest'
import { dispatching, eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import type { Delivery, Lockstep, Sink } from '../index.ts'
import { on } from '../observe/index.ts'

/** Who waits for a sink that asks for time, and who does not. */

const bench = await outboxBench()
const HOUR_MS = 3_600_000

async function enqueue(lockstep: Lockstep, ...keys: string[]): Promise<void> {
  await lockstep.transaction({}, (tx) => tx.enqueueMany(keys.map((key) => ({ topic: 't', key, payload: 1 }))))
}

/** The sink asks a shard to come back in an hour. Another one gets something through: that closes the breaker for all. */
test('resumes every shard when one of them delivers', async () => {
  const { lockstep } = bench.open('pg', { max: 8 })
  let first: string | undefined
  let [asked, other, down] = [false, false, 0]
  bench.cleanUp(on('outbox.sinkDown', () => down++))
  const run = dispatching(lockstep, {
    shards: 8,
    async sink(events, { shard }) {
      first ??= String(shard)
      if (first === String(shard)) {
        // Not before the other one is in progress.
        await eventually(() => other || asked)
        if (!asked) {
          asked = true
          return events.map(() => ({ unknown: 'busy', retryAfterMs: HOUR_MS }))
        }
      } else {
        other = true
        // The breaker is open by then.
        await eventually(() => down > 0)
      }
      return events.map(() => 'sent' as const)
    },
  })
  const keys = Array.from({ length: 40 }, (_, n) => `k${n}`)
  await enqueue(lockstep, ...keys)
  await run.until(40)
  await run.stop()
  expect(new Set(run.delivered).size).toBe(40)
})

/** Two streams wait, for two receivers; only one of these has asked to be left alone for an hour. Nothing else is sent. */
test('retries each parked stream after its own delay, and blames none before something is delivered', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const options = { shards: 1, attempts: 1, giveUp: 'skip' as const }
  const before = dispatching(lockstep, {
    ...options,
    sink: (events) => events.map(({ key }) => (key === 'fine' ? 'sent' : { unknown: 'silent' })),
  })
  await enqueue(lockstep, 'asks', 'fails', 'silent', 'fine')
  await eventually(async () => (await lockstep.outbox.parked()).length === 3)
  await before.stop()
  let down = true
  const tried = new Set<string>()
  const after = dispatching(lockstep, {
    ...options,
    sink: (events) =>
      events.map(({ key }): Delivery => {
        if (!down) return 'sent'
        tried.add(key)
        if (key === 'fails') return { failed: 'broken' }
        return key === 'asks' ? { unknown: 'busy', retryAfterMs: HOUR_MS } : { unknown: 'silent' }
      }),
  })
  await eventually(() => tried.size === 3)
  down = false
  await after.until(2)
  await after.stop()
  expect(after.delivered.toSorted()).toEqual(['t/fails#1', 't/silent#1'])
})

/** Another owner takes the shard in the middle of a batch. That says nothing about the sink. */
test('does not report a sink down when a shard is lost', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const down: string[] = []
  bench.cleanUp(on('outbox.sinkDown', ({ reason }) => down.push(reason)))
  let lost = false
  const run = dispatching(lockstep, {
    shards: 1,
    ttlMs: 500,
    async sink(events, { signal }) {
      if (lost) return events.map(() => 'sent' as const)
      lost = true
      await lockstep.leases.forceRelease('Outbox:default:shard:0', { by: 'test', reason: 'test' })
      await eventually(() => signal.aborted)
      return events.map(() => ({ unknown: 'the shard was lost' }))
    },
  })
  await enqueue(lockstep, 'a')
  await run.until(1)
  await run.stop()
  expect(down).toEqual([])
})

test('sends nothing to a sink that says it is not healthy', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const stopping = new AbortController()
  let [sent, asked] = [0, 0]
  const sink: Sink = {
    name: 'down',
    send() {
      sent++
      return Promise.reject(new Error('down'))
    },
    healthy: () => Promise.resolve(++asked < 0),
  }
  const running = lockstep.outbox.dispatcher({ sink, shards: 1, retainMs: false }).run({ signal: stopping.signal })
  await enqueue(lockstep, 'a')
  await eventually(() => asked > 2)
  // Once together, once the stream by itself.
  expect(sent).toBe(2)
  stopping.abort()
  await running
})
