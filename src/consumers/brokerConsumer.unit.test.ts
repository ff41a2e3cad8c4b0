import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { describe, expect, onTestFinished, test } from 'vitest'
import { InboxGapError } from '../errors.ts'
import type { InboxEvent } from '../inbox/index.ts'
import { brokerConsumer, type BrokerConsumerOptions, type ConsumerGap, type Intake } from './brokerConsumer.ts'
import type { ConsumedEvent } from './handler.ts'
import type { Message } from './message.ts'

/** A Lockstep without a database: its inbox has the position that it is given, and accepts what follows. */
function lockstepAt(position: number): BrokerConsumerOptions['lockstep'] {
  let last = position
  const accept = ({ seq }: InboxEvent): string | Error => {
    if (seq <= last) return 'duplicate'
    if (seq > last + 1) return new InboxGapError('a gap', { expected: last + 1, seq, advice: '' })
    last = seq
    return 'first'
  }
  return {
    schema: 'lockstep',
    transaction: (_: unknown, fn: (tx: object) => Promise<unknown>) => fn({}),
    inbox: {
      consumer: () => ({ acceptMany: (_: unknown, events: InboxEvent[]) => Promise.resolve(events.map(accept)) }),
    },
  } as unknown as BrokerConsumerOptions['lockstep']
}

interface Delivered {
  readonly acknowledged: number[]
  readonly handled: number[]
  /** Delivers an event of the one stream. */
  readonly deliver: (seq: number) => void
  readonly stop: () => Promise<void>
  readonly ended: Promise<void>
}

async function consume(
  options: Omit<BrokerConsumerOptions, 'lockstep'>,
  position = 0,
  lockstep = lockstepAt(position),
): Promise<Delivered> {
  const [acknowledged, handled]: [number[], number[]] = [[], []]
  let open: (intake: Intake) => void = () => undefined
  const opened = new Promise<Intake>((resolve) => (open = resolve))
  const consumer = brokerConsumer(
    'kafkaConsumer()',
    'billing',
    { ...options, lockstep, backoffMs: { first: 5, longest: 5 } },
    ({ seq }: ConsumedEvent) => void handled.push(seq),
    () => ({
      name: 'a broker',
      async read(intake, signal) {
        open(intake)
        await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
      },
    }),
  )
  const ended = consumer.run()
  ended.catch(() => undefined)
  const intake = await opened
  const deliver = (seq: number): void => {
    const event = { topic: 't', key: 'k', seq, id: `${seq}`, headers: {} } as unknown as ConsumedEvent
    const message: Message = { event, bytes: 1, done: () => void acknowledged.push(seq) }
    intake.take(message)
  }
  return { acknowledged, handled, deliver, stop: () => consumer.stop(), ended }
}

describe('a consumer of a broker', () => {
  test('reports no gap for a number that comes in a moment', async () => {
    const gaps: ConsumerGap[] = []
    const { deliver, handled, stop } = await consume({ onGap: (gap) => void gaps.push(gap) })
    // As where two processes share a queue.
    const onStopped = (): void => deliver(1)
    subscribe('lockstep:consumer.stopped', onStopped)
    onTestFinished(() => void unsubscribe('lockstep:consumer.stopped', onStopped))
    deliver(2)
    await expect.poll(() => handled).toEqual([1, 2])
    await stop()
    expect(gaps).toEqual([])
  })

  test('reports a gap that is still there after a pause, with the number that is missing', async () => {
    const gaps: ConsumerGap[] = []
    const onGap = (gap: ConsumerGap): void => {
      gaps.push(gap)
      deliver(gap.expected)
    }
    const { deliver, handled, stop } = await consume({ onGap })
    deliver(3)
    await expect.poll(() => handled).toEqual([])
    await expect.poll(() => gaps[0]).toEqual({ topic: 't', key: 'k', expected: 1, seq: 3 })
    deliver(2)
    await expect.poll(() => handled).toEqual([1, 2, 3])
    await stop()
  })

  test('acknowledges only what is on disk', async () => {
    const lockstep = lockstepAt(0)
    const asked: unknown[] = []
    const inbox = {
      consumer: () => ({
        acceptMany: (_: unknown, events: InboxEvent[], options: object) => {
          asked.push(options)
          return Promise.resolve(events.map(() => 'first'))
        },
      }),
    }
    const { deliver, acknowledged, stop } = await consume({}, 0, { ...lockstep, inbox } as unknown as typeof lockstep)
    deliver(1)
    await expect.poll(() => acknowledged).toEqual([1])
    await stop()
    expect(asked).toEqual([expect.objectContaining({ durable: true })])
  })

  test('ends while it is full and the database does not answer', async () => {
    const { schema, inbox } = lockstepAt(0)
    const transaction = (): Promise<never> => Promise.reject(Object.assign(new Error('gone'), { code: '57P01' }))
    const [back, lockstep] = [[] as number[], { schema, inbox, transaction }]
    let full = (): void => undefined
    const filled = new Promise<void>((resolve) => (full = resolve))
    const consumer = brokerConsumer(
      'natsConsumer()',
      'billing',
      { lockstep, maxInFlight: 1 },
      () => undefined,
      () => ({
        name: 'a broker',
        async read(intake, signal) {
          for (let seq = 1; !signal.aborted; seq++) {
            const event = { topic: 't', key: 'k', seq, id: `${seq}`, headers: {} } as unknown as ConsumedEvent
            intake.take({ event, bytes: 1, done: () => undefined, again: () => void back.push(seq) })
            full()
            await intake.room()
          }
        },
      }),
    )
    const running = consumer.run()
    await filled
    await consumer.stop()
    await running
    expect(back).toEqual([1])
  })

  test('ends while the broker does not answer', async () => {
    const consumer = brokerConsumer(
      'rabbitmqConsumer()',
      'billing',
      { lockstep: lockstepAt(0) },
      () => undefined,
      () => ({ name: 'a broker', read: () => new Promise<void>(() => undefined) }),
    )
    const running = consumer.run()
    await consumer.stop()
    await running
  })

  test('ends, and acknowledges nothing, if the function of limitBy throws', async () => {
    const tenant = (): string => {
      throw new TypeError('no tenant')
    }
    const { deliver, acknowledged, ended } = await consume({
      unreadable: 'skip',
      limitBy: { tenant, concurrency: 1 },
    })
    deliver(1)
    await expect(ended).rejects.toThrow('no tenant')
    expect(acknowledged).toEqual([])
  })
})
