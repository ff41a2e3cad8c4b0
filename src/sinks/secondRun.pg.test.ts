import { describe, expect, test } from 'vitest'
import { eventually } from '../../tools/server/testing/dispatching.ts'
import { DRIVERS, testBench } from '../../tools/server/testing/workbench.ts'
import { startWebhookReceiver } from '../../tools/server/webhook.ts'
import type { Dispatcher, Lockstep } from '../index.ts'
import { webhookSink } from './webhook.ts'

/** A packaged sink serves one run() after the other, and several at once. */

const bench = await testBench()
const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`
let number = 0

async function enqueue(lockstep: Lockstep, topic: string): Promise<void> {
  await lockstep.transaction({}, (tx) => tx.enqueue({ topic, key: 'a', payload: 1 }))
}

function start(dispatcher: Dispatcher): () => Promise<void> {
  const stopping = new AbortController()
  const running = dispatcher.run({ signal: stopping.signal })
  running.catch(() => undefined)
  return async () => {
    stopping.abort()
    await running
  }
}

describe.each(DRIVERS)('the sink of a dispatcher, %s', (driver) => {
  test('opens again with a second run()', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const receiver = await startWebhookReceiver()
    try {
      const topic = `t${++number}`
      const sink = webhookSink({ url: `http://127.0.0.1:${receiver.port}/`, secret: SECRET })
      const dispatcher = lockstep.outbox.dispatcher({ sink, name: topic, shards: 1, ttlMs: 2000 })
      const seqs = (): (string | undefined)[] =>
        receiver.taken
          .filter(({ headers }) => headers['lockstep-topic'] === topic)
          .map(({ headers }) => headers['lockstep-seq'] as string)
      for (const round of [1, 2, 3]) {
        await enqueue(lockstep, topic)
        const stop = start(dispatcher)
        await eventually(() => seqs().length === round)
        await stop()
      }
      expect(seqs()).toEqual(['1', '2', '3'])
    } finally {
      await receiver.kill()
    }
  })

  test('stays open for another dispatcher, and for the caller that has opened it', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const receiver = await startWebhookReceiver()
    try {
      const topic = `t${++number}`
      const sink = webhookSink({ url: `http://127.0.0.1:${receiver.port}/`, secret: SECRET })
      await sink.open?.()
      const options = { sink, shards: 1, ttlMs: 2000 } as const
      const taken = (): number => receiver.taken.filter(({ headers }) => headers['lockstep-topic'] === topic).length
      const stopFirst = start(lockstep.outbox.dispatcher({ ...options, name: `${topic}-1` }))
      const stopSecond = start(lockstep.outbox.dispatcher({ ...options, name: `${topic}-2` }))
      await enqueue(lockstep, topic)
      await eventually(() => taken() === 2)
      await stopFirst()
      await enqueue(lockstep, topic)
      await eventually(() => taken() === 3)
      await stopSecond()
      expect(await sink.healthy?.()).toBe(true)
      await sink.close?.()
      expect(await sink.healthy?.()).toBe(false)
    } finally {
      await receiver.kill()
    }
  })
})
