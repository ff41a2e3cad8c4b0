import { setImmediate as turn } from 'node:timers/promises'
import { expect, onTestFinished, test } from 'vitest'
import type { BrokerConsumerOptions } from '../consumers/index.ts'
import type { InboxEvent } from '../inbox/index.ts'
import { kafkaConsumer, type KafkaBatchDelivery, type KafkaDelivery, type KafkaGroupConsumer } from './kafkaConsumer.ts'
import { messageHeaders } from './message.ts'
import { eventOf } from './sinkBench.conformance.ts'

/** Accepts everything. */
const LOCKSTEP = {
  schema: 'lockstep',
  transaction: (_: unknown, fn: (tx: object) => Promise<unknown>) => fn({}),
  inbox: {
    consumer: () => ({
      acceptMany: (_: unknown, events: InboxEvent[]) => Promise.resolve(events.map(() => 'first')),
    }),
  },
} as unknown as BrokerConsumerOptions['lockstep']

type Listener = (event: { readonly payload: object }) => void

/** kafkajs, as the consumer sees it, with what was committed. */
class Group {
  readonly commits: string[] = []
  readonly #listeners = new Map<string, Listener>()
  #batch: ((given: KafkaBatchDelivery) => Promise<void>) | undefined
  commitFails = false
  asked = 0
  /** While there is no room for the rest of a batch. */
  onHeartbeat = (): void => undefined

  get client(): KafkaGroupConsumer {
    return {
      connect: () => Promise.resolve(),
      subscribe: () => Promise.resolve(),
      run: async ({ eachBatch }) => void (this.#batch = eachBatch),
      commitOffsets: async (offsets) => {
        this.asked++
        if (this.commitFails) throw new Error('REBALANCE_IN_PROGRESS')
        for (const { partition, offset } of offsets) this.commits.push(`${partition}@${offset}`)
      },
      disconnect: () => Promise.resolve(),
      on: (event, listener) => void this.#listeners.set(event, listener),
    }
  }

  emit(event: string, payload: object): void {
    this.#listeners.get(event)?.({ payload })
  }

  async deliver(partition: number, key: string, from: number, count: number): Promise<void> {
    while (this.#batch === undefined) await turn()
    const messages = Array.from({ length: count }, (_, index): KafkaDelivery => {
      const event = eventOf('orders', key, from + index + 1)
      return { offset: String(from + index), value: event.body, headers: messageHeaders(event) }
    })
    const [resolveOffset, heartbeat] = [() => undefined, async () => this.onHeartbeat()]
    const state = { resolveOffset, heartbeat, isRunning: () => true, isStale: () => false }
    await this.#batch({ batch: { topic: 'orders', partition, messages }, ...state })
  }
}

function consume(
  groups: readonly Group[],
  handler: (name: string) => Promise<void> | void,
  options: { readonly maxInFlight?: number } = {},
): string[] {
  const handled: string[] = []
  let opened = 0
  const consumer = kafkaConsumer(
    'billing',
    {
      lockstep: LOCKSTEP,
      topics: ['orders'],
      consumer: () => (groups[Math.min(opened++, groups.length - 1)] as Group).client,
      backoffMs: { first: 5, longest: 5 },
      sharedTransactions: false,
      ...options,
    },
    async ({ key, seq }) => {
      await handler(`${key}${seq}`)
      handled.push(`${key}${seq}`)
    },
  )
  const running = consumer.run()
  onTestFinished(async () => {
    await consumer.stop()
    await running
  })
  return handled
}

test('commits the offset before the first message that was not applied', async () => {
  const group = new Group()
  let goOn = (): void => undefined
  const released = new Promise<void>((resolve) => (goOn = resolve))
  const handled = consume([group], (name) => (name === 'a1' ? released : undefined))
  await group.deliver(0, 'a', 0, 2)
  await group.deliver(0, 'b', 2, 3)
  await expect.poll(() => handled).toEqual(['b3', 'b4', 'b5'])
  await expect.poll(() => group.commits, { timeout: 10_000 }).toEqual(['0@0'])
  goOn()
  await expect.poll(() => group.commits.at(-1), { timeout: 10_000 }).toBe('0@5')
})

test('commits what could not be committed the next time', async () => {
  const group = new Group()
  group.commitFails = true
  const handled = consume([group], () => undefined)
  await group.deliver(0, 'a', 0, 3)
  await expect.poll(() => handled.length).toBe(3)
  await expect.poll(() => group.asked, { timeout: 10_000 }).toBeGreaterThan(0)
  group.commitFails = false
  await expect.poll(() => group.commits, { timeout: 10_000 }).toEqual(['0@3'])
})

test('opens another consumer when kafkajs has given its own up', async () => {
  const [first, second] = [new Group(), new Group()]
  const handled = consume([first, second], () => undefined)
  await first.deliver(0, 'a', 0, 1)
  await expect.poll(() => handled).toEqual(['a1'])
  first.emit('consumer.crash', { error: new Error('not authorized'), restart: false })
  await second.deliver(0, 'a', 1, 1)
  await expect.poll(() => handled).toEqual(['a1', 'a2'])
})

test('drops what it has of a partition that is assigned to another process', async () => {
  const group = new Group()
  let tries = 0
  const handled = consume([group], (name) => {
    if (name !== 'a1') return
    tries++
    throw new Error('not yet')
  })
  await group.deliver(0, 'a', 0, 1)
  await group.deliver(1, 'b', 0, 1)
  await expect.poll(() => tries).toBeGreaterThan(1)
  group.emit('consumer.group_join', { memberAssignment: { orders: [1] } })
  await expect.poll(() => group.commits, { timeout: 10_000 }).toEqual(['1@1'])
  expect(handled).toEqual(['b1'])
  const before = tries
  await group.deliver(1, 'b', 1, 1)
  await expect.poll(() => handled).toEqual(['b1', 'b2'])
  // One try may have been in progress.
  expect(tries).toBeLessThanOrEqual(before + 1)
})

test('takes no more of a batch whose partition was assigned to another process meanwhile', async () => {
  const group = new Group()
  let goOn = (): void => undefined
  const released = new Promise<void>((resolve) => (goOn = resolve))
  const handler = (name: string): Promise<void> | undefined => {
    if (name === 'c2') throw new Error('not yet')
    return name === 'a1' ? released : undefined
  }
  const handled = consume([group], handler, { maxInFlight: 2 })
  await group.deliver(0, 'a', 0, 1)
  group.onHeartbeat = () => {
    group.onHeartbeat = () => undefined
    // c2 is dropped: the other process gets it.
    group.emit('consumer.group_join', { memberAssignment: { orders: [1] } })
    goOn()
  }
  await group.deliver(0, 'c', 1, 3)
  await group.deliver(1, 'b', 0, 1)
  await expect.poll(() => group.commits.at(-1), { timeout: 10_000 }).toBe('1@1')
  // Not 0@2, as where c3 counts as the first message: c2 is lost if the other process ends before it commits more.
  expect(group.commits.filter((each) => each.startsWith('0@') && each !== '0@0')).toEqual([])
  expect(handled).toEqual(['a1', 'b1'])
})
