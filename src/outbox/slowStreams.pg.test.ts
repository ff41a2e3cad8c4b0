import { describe, expect, test } from 'vitest'
import { eventually } from '../../tools/server/testing/dispatching.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { DRIVERS, type Signal, signal } from '../../tools/server/testing/workbench.ts'
import { type DispatcherOptions, type Lockstep, type OutboxEvent, perEvent } from '../index.ts'

/** A receiver that does not answer delays its own stream, and no other of its shard. */

const bench = await outboxBench()

async function enqueue(lockstep: Lockstep, ...keys: string[]): Promise<void> {
  await lockstep.transaction({}, (tx) => tx.enqueueMany(keys.map((key) => ({ topic: 'trades', key, payload: 1 }))))
}

/** A dispatcher with one shard, whose handler answers for the stream `slow` when the test says so, and for all others at once. */
function run(
  lockstep: Lockstep,
  options: Partial<DispatcherOptions> = {},
): { readonly begun: string[]; readonly ended: string[]; readonly answer: Signal; readonly stop: () => Promise<void> } {
  const [begun, ended, answer, stopping] = [[] as string[], [] as string[], signal(), new AbortController()]
  const handle = async ({ key, seq }: OutboxEvent): Promise<void> => {
    begun.push(`${key}${seq}`)
    if (key.startsWith('slow')) await answer.given
    ended.push(`${key}${seq}`)
  }
  const running = lockstep.outbox
    .dispatcher({ sink: perEvent({}, handle), shards: 1, slowAfterMs: 20, ...options })
    .run({ signal: stopping.signal })
  running.catch(() => undefined)
  return {
    begun,
    ended,
    answer,
    async stop() {
      stopping.abort()
      await running
    },
  }
}

const of = (list: readonly string[], key: string): string[] => list.filter((each) => each.startsWith(key))

describe.each(DRIVERS)('slow streams, %s', (driver) => {
  test('do not delay the others of their shard, and are sent once, in order', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const { begun, ended, answer, stop } = run(lockstep)
    await enqueue(lockstep, 'slow', 'a', 'slow', 'a')
    await eventually(() => of(ended, 'a').length === 2)
    for (let round = 0; round < 10; round++) {
      await enqueue(lockstep, 'a', 'slow')
      await eventually(() => of(ended, 'a').length === 3 + round)
    }
    const [parked] = await lockstep.outbox.parked()
    expect(parked).toMatchObject({
      key: 'slow',
      state: 'parked',
      attempts: 0,
      head: 1,
      reason: expect.stringMatching(/^slow: /),
    })
    expect(of(begun, 'slow')).toEqual(['slow1'])
    answer.give()
    await eventually(() => of(ended, 'slow').length === 12)
    await eventually(async () => (await lockstep.outbox.parked()).length === 0)
    await stop()
    expect(of(begun, 'slow')).toEqual(Array.from({ length: 12 }, (_, n) => `slow${n + 1}`))
    expect(of(begun, 'a')).toEqual(Array.from({ length: 12 }, (_, n) => `a${n + 1}`))
  })

  test('do not delay the events after a batch of them', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const { ended, answer, stop } = run(lockstep)
    await enqueue(lockstep, 'slow', 'slow-too')
    await eventually(async () => (await lockstep.outbox.parked()).length === 2)
    await enqueue(lockstep, 'a')
    await eventually(() => ended.includes('a1'))
    answer.give()
    await eventually(() => ended.length === 3)
    await stop()
  })

  test('delay their batch with slowAfterMs: false', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const { begun, ended, answer, stop } = run(lockstep, { slowAfterMs: false, batch: 2 })
    await enqueue(lockstep, 'slow', 'a')
    await eventually(() => ended.includes('a1'))
    await enqueue(lockstep, 'a')
    expect(await lockstep.outbox.parked()).toEqual([])
    answer.give()
    await eventually(() => ended.length === 3)
    await stop()
    expect(begun.filter((each) => each === 'slow1')).toHaveLength(1)
  })

  test('are not sent again after their dispatcher has stopped', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const first = run(lockstep)
    await enqueue(lockstep, 'slow', 'slow')
    await eventually(async () => (await lockstep.outbox.parked()).length === 1)
    const stopping = first.stop()
    first.answer.give()
    await stopping
    const sent = first.ended.length
    expect(first.begun).toEqual(first.ended)
    const second = run(lockstep)
    second.answer.give()
    await eventually(() => second.ended.length === 2 - sent)
    await eventually(async () => (await lockstep.outbox.parked()).length === 0)
    await second.stop()
    expect([...first.begun, ...second.begun]).toEqual(['slow1', 'slow2'])
  })

  // Once: it asked for the streams that are due, and one that was just asked for has a pause.
  test('are waited for on stop, also before they are due', async () => {
    const { lockstep } = bench.open(driver, { max: 6 })
    const first = run(lockstep, { slowAfterMs: 1000 })
    await enqueue(lockstep, 'slow', 'slow')
    await eventually(async () => {
      const { rowCount } = await bench.admin.query(
        `SELECT FROM lockstep.outbox_parked WHERE next_attempt_at > clock_timestamp() + interval '100 ms'`,
      )
      return rowCount === 1
    })
    const stopping = first.stop()
    // Its pause is over: a dispatcher that asked only for what was due has stopped by now.
    await eventually(async () => {
      const { rowCount } = await bench.admin.query(
        `SELECT FROM lockstep.outbox_parked WHERE next_attempt_at <= clock_timestamp()`,
      )
      return rowCount === 1
    })
    first.answer.give()
    await stopping
    expect(first.ended).toEqual(['slow1'])
    const second = run(lockstep)
    second.answer.give()
    await eventually(() => second.ended.length >= 1)
    await eventually(async () => (await lockstep.outbox.parked()).length === 0)
    await second.stop()
    expect([...first.begun, ...second.begun]).toEqual(['slow1', 'slow2'])
  })
})

// No process reads the shard while its owner waits.
test('bounds the wait on stop, so that the next dispatcher serves the other streams', async () => {
  const { lockstep } = bench.open('pg', { max: 6 })
  const first = run(lockstep)
  await enqueue(lockstep, 'slow')
  await eventually(async () => (await lockstep.outbox.parked()).length === 1)
  const stopping = first.stop()
  await enqueue(lockstep, 'a')
  const second = run(lockstep)
  await expect.poll(() => second.ended).toContain('a1')
  first.answer.give()
  second.answer.give()
  await stopping
  await second.stop()
})
