import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import pg from 'pg'
import { DRIVERS, signal, testBench } from '../../tools/server/testing/workbench.ts'
import { EventRefusedError, InvalidOptionError, Lockstep, type EventHandler } from '../index.ts'
import { describeConsumer } from './consumers.conformance.ts'

describeConsumer('A consumer of its own database', async (url) => {
  const pool = new pg.Pool({ connectionString: url, max: 2 })
  const lockstep = new Lockstep(pool)
  return {
    send: (topic, keys, count, from = 1) =>
      lockstep.transaction({}, async (tx) => {
        for (let seq = from; seq < from + count; seq++) {
          await tx.enqueueMany(keys.map((key) => ({ topic, key, payload: { seq } })))
        }
      }),
    // A replay sends the stored events to a sink: a consumer that reads its own outbox has no other way to get one twice.
    sendAgain: undefined,
    open: (of, name, topic, { events: _events, ...options }, handler) =>
      Promise.resolve(
        of.consumer(
          name,
          { ...options, topics: [topic as '*'], slowAfterMs: 300, backoffMs: { first: 20, longest: 100 } },
          handler as EventHandler,
        ),
      ),
    async close() {
      await lockstep.close()
      await pool.end()
    },
  }
})

const bench = await testBench()

describe.each(DRIVERS)('a consumer of the own database, %s', (driver) => {
  let names = 0
  const open = (): { lockstep: Lockstep; topic: string } => {
    const { lockstep } = bench.open(driver, { max: 10 })
    return { lockstep, topic: `${driver}-${++names}` }
  }
  const enqueue = (lockstep: Lockstep, topic: string, keys: readonly string[], count = 1): Promise<void> =>
    lockstep.transaction({}, async (tx) => {
      for (let n = 0; n < count; n++) await tx.enqueueMany(keys.map((key) => ({ topic, key, payload: { n } })))
    })
  const keysOf = (count: number): string[] => Array.from({ length: count }, (_, index) => `k${index}`)

  test('handles many keys in few transactions', async () => {
    const { lockstep, topic } = open()
    await enqueue(lockstep, topic, keysOf(100), 3)
    const transactions = new Set<object>()
    const options = { topics: [topic], shards: 1, concurrency: 1 }
    const consumer = lockstep.consumer(topic, options, (_event, tx) => void transactions.add(tx))
    const { delivered } = await consumer.drain()
    expect(delivered).toBe(300)
    expect(transactions.size).toBeLessThan(100)
  })

  test('has the events of a key in one transaction at a time', async () => {
    const { lockstep, topic } = open()
    await enqueue(lockstep, topic, keysOf(5), 40)
    const handled = new Map<string, number[]>()
    const consumer = lockstep.consumer(topic, { topics: [topic], concurrency: 4, batch: 10 }, ({ key, seq }) => {
      handled.set(key, [...(handled.get(key) ?? []), seq])
    })
    expect(await consumer.drain()).toMatchObject({ delivered: 200 })
    expect(await lockstep.outbox.parked({ dispatcher: topic })).toEqual([])
    const inOrder = Array.from({ length: 40 }, (_, index) => index + 1)
    expect([...handled.values()]).toEqual(keysOf(5).map(() => inOrder))
  })

  test('parks a poison event, which an operator skips', async () => {
    const { lockstep, topic } = open()
    await enqueue(lockstep, topic, ['good', 'bad'], 3)
    const handled: string[] = []
    const options = { topics: [topic], attempts: 2, backoffMs: { first: 1, longest: 1 } }
    const consumer = lockstep.consumer(topic, options, async ({ key, seq }) => {
      if (key === 'bad' && seq === 2) throw new EventRefusedError('no such currency')
      handled.push(`${key}${seq}`)
    })
    const running = consumer.run()
    const parked = (): ReturnType<Lockstep['outbox']['parked']> => lockstep.outbox.parked({ dispatcher: topic })
    await expect.poll(async () => (await parked())[0]?.state, { timeout: 30_000 }).toBe('blocked')
    const [stream] = await parked()
    expect(stream).toMatchObject({ key: 'bad', head: 2, reason: expect.stringContaining('no such currency') })
    await lockstep.outbox.skip({ dispatcher: topic, topic, key: 'bad', seq: 2 }, { reason: 'wrong currency' })
    await expect
      .poll(() => lockstep.inbox.consumer(topic).position({ topic, key: 'bad' }), { timeout: 30_000 })
      .toMatchObject({ seq: 3 })
    await consumer.stop()
    await running
    // Handlers of a transaction that was rolled back have run before.
    expect(new Set(handled)).toEqual(new Set(['good1', 'good2', 'good3', 'bad1', 'bad3']))
  })

  test('continues with other keys while a handler is slow, and handles its event once', async () => {
    const { lockstep, topic } = open()
    const goOn = signal()
    await enqueue(lockstep, topic, ['slow'], 2)
    let runs = 0
    const options = { topics: [topic], shards: 1, slowAfterMs: 50, concurrency: 2 }
    await using consumer = lockstep.consumer(topic, options, async ({ key, seq }) => {
      if (key !== 'slow' || seq !== 1) return
      runs++
      await goOn.given
    })
    const running = consumer.run()
    await expect.poll(() => runs).toBe(1)
    await enqueue(lockstep, topic, ['quick'])
    const position = (key: string): Promise<unknown> => lockstep.inbox.consumer(topic).position({ topic, key })
    await expect.poll(() => position('quick'), { timeout: 30_000 }).toMatchObject({ seq: 1 })
    goOn.give()
    await expect.poll(() => position('slow'), { timeout: 30_000 }).toMatchObject({ seq: 2 })
    await consumer.stop()
    await running
    expect(runs).toBe(1)
  })

  test('counts the failures of a handler that is slow, and gives its event up', async () => {
    const { lockstep, topic } = open()
    await enqueue(lockstep, topic, ['k'], 2)
    let runs = 0
    const giving = { attempts: 3, giveUp: 'skip', backoffMs: { first: 1, longest: 1 } } as const
    const options = { topics: [topic], shards: 1, slowAfterMs: 50, ...giving }
    await using consumer = lockstep.consumer(topic, options, async ({ seq }) => {
      if (seq !== 1) return
      runs++
      await sleep(120)
      throw new Error('the other service does not answer')
    })
    const running = consumer.run()
    const position = (): Promise<unknown> => lockstep.inbox.consumer(topic).position({ topic, key: 'k' })
    await expect.poll(position, { timeout: 30_000 }).toMatchObject({ seq: 2 })
    await consumer.stop()
    await running
    // A transaction of both events, and then the first one alone, is one attempt.
    expect(runs).toBeLessThanOrEqual(2 * 3)
  })

  test('begins with the oldest event that is there, and reports a gap afterwards', async () => {
    const { lockstep, topic } = open()
    await enqueue(lockstep, topic, ['k'], 3)
    const consumer = lockstep.consumer(topic, { topics: [topic] }, () => undefined)
    await consumer.drain()
    await lockstep.transaction({}, (tx) =>
      lockstep.inbox.consumer(topic).startAt(tx, { topic, key: 'k' }, 2, { force: true }),
    )
    await enqueue(lockstep, topic, ['k'])
    await consumer.drain()
    const [stream] = await lockstep.outbox.parked({ dispatcher: topic })
    expect(stream).toMatchObject({ key: 'k', head: 4, reason: expect.stringContaining('expects #2') })
  })

  test('rejects invalid options', () => {
    const { lockstep } = open()
    const handler = (): void => undefined
    for (const options of [
      { concurrency: 0 },
      { batch: 0 },
      { timeoutMs: 0 },
      { isolation: 'chaos' },
      { limitBy: { tenant: 'x', concurrency: 1 } },
      { limitBy: { tenant: () => '', concurrency: 9 }, concurrency: 8 },
      { sink: handler },
    ]) {
      expect(() => lockstep.consumer('c', options as object, handler)).toThrow(InvalidOptionError)
    }
    expect(() => lockstep.consumer('no spaces', {}, handler)).toThrow(InvalidOptionError)
    expect(() => lockstep.consumer('c', {}, undefined as never)).toThrow(InvalidOptionError)
  })
})
