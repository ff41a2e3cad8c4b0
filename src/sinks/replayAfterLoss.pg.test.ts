import { connect } from 'amqplib'
import { Redis } from 'ioredis'
import { beforeAll, beforeEach, expect, test } from 'vitest'
import { consumedBrokers, type ConsumedBroker } from '../../tools/brokers/consumed.ts'
import { outboxBench } from '../../tools/server/testing/outboxBench.ts'
import { type BrokerConsumerOptions, type ConsumerGap, type EventHandler, type Lockstep, perEvent } from '../index.ts'
import type { Sink, SinkFunction } from '../outbox/index.ts'
import { redisStreamName } from './redis.ts'

/** What a broker has lost is still in the outbox: `onGap` replays it, and the consumer continues behind it. */

const bench = await outboxBench()

const NAME = 'billing'
const KEYS = ['a', 'b'] as const
const COUNT = 6

beforeAll(() => bench.admin.query('CREATE TABLE handled (place serial, name text)'))
beforeEach(() => bench.admin.query('TRUNCATE handled'))

const handler: EventHandler = async ({ key, seq }, tx) => {
  await tx.query('INSERT INTO handled (name) VALUES ($1)', [`${key}#${seq}`])
}

async function handled(): Promise<string[]> {
  const { rows } = await bench.admin.query<{ name: string }>(`SELECT name FROM handled ORDER BY left(name, 1), place`)
  return rows.map(({ name }) => name)
}

interface Loss {
  readonly loss: string
  /** Positions of a consumer stay: each test has a topic of its own. */
  readonly topic: string
  readonly tested: ConsumedBroker
  /** Loses events that the broker has confirmed. */
  readonly lose: (address: string, topic: string) => Promise<unknown>
  /** The numbers that it has lost, of the key a and of the key b. */
  readonly lost: { readonly a?: readonly number[]; readonly b?: readonly number[] }
  /** What the replay sends to. */
  readonly target: (lockstep: Lockstep, sink: Sink) => Sink | SinkFunction
}

/** The broker has the events again, behind those that the consumer keeps. */
const toBroker: Loss['target'] = (_, sink) => sink

/** Redis takes nothing back: to the position and the effects of the consumer, without the broker. */
const toHandler: Loss['target'] = (lockstep) => {
  const inbox = lockstep.inbox.consumer(NAME)
  return perEvent({}, async (event) => {
    await inbox.handle(event, {}, (tx) => handler(event, tx))
  })
}

async function onRedis(
  address: string,
  topic: string,
  work: (client: Redis, name: string) => Promise<unknown>,
): Promise<void> {
  const [host, port] = address.split(':') as [string, string]
  const client = new Redis({ host, port: Number(port) })
  try {
    await work(client, redisStreamName({ topic, key: 'a' }))
  } finally {
    client.disconnect()
  }
}

const LOSSES: readonly Loss[] = [
  {
    loss: 'a trimmed stream of Redis',
    topic: 'trimmed',
    tested: consumedBrokers.redis,
    lose: (address, topic) => onRedis(address, topic, (client, name) => client.call('XTRIM', name, 'MINID', '4-0')),
    lost: { a: [1, 2, 3] },
    target: toHandler,
  },
  {
    loss: 'entries in the middle of a stream of Redis',
    topic: 'deleted',
    tested: consumedBrokers.redis,
    lose: (address, topic) => onRedis(address, topic, (client, name) => client.xdel(name, '2-0', '4-0', '5-0')),
    lost: { a: [2, 4, 5] },
    target: toHandler,
  },
  {
    loss: 'the first messages of a queue of RabbitMQ',
    topic: 'queued',
    tested: consumedBrokers.rabbitmq,
    async lose(address, topic) {
      const connection = await connect(`amqp://guest:guest@${address}`)
      const channel = await connection.createChannel()
      for (let n = 0; n < 2 * KEYS.length; n++) await channel.get(topic, { noAck: true })
      await connection.close()
    },
    lost: { a: [1, 2], b: [1, 2] },
    target: toBroker,
  },
]

test.each(LOSSES)('a replay from onGap repairs the loss of $loss', async ({ topic, tested, lose, lost, target }) => {
  const { broker } = tested
  const running = await broker.run()
  bench.cleanUp(() => running.stop())
  await tested.prepare?.(running.address, topic)
  const connected = await broker.connect(running.address, { timeoutMs: 10_000 })
  bench.cleanUp(() => connected.end())
  const { lockstep } = bench.open('pg', { max: 10 })

  const dispatcher = bench.dispatch(lockstep, { sink: (events, context) => connected.sink.send(events, context) })
  for (let n = 1; n <= COUNT; n++) {
    await lockstep.transaction({}, (tx) => tx.enqueueMany(KEYS.map((key) => ({ topic, key, payload: n }))))
    await dispatcher.until(n * KEYS.length)
  }
  await lose(running.address, topic)

  const gaps: ConsumerGap[] = []
  const missing = new Set(KEYS.flatMap((key) => (lost[key] ?? []).map((seq) => `${key}#${seq}`)))
  const options = {
    lockstep,
    backoffMs: { first: 20, longest: 200 },
    onGap: async (gap: ConsumerGap) => {
      gaps.push(gap)
      const { key, expected: fromSeq, seq } = gap
      await lockstep.outbox.replay({ topic, key, fromSeq, toSeq: seq - 1, sink: target(lockstep, connected.sink) })
    },
  } as unknown as BrokerConsumerOptions
  const consumer = await tested.open(running.address, NAME, topic, options, handler)
  bench.cleanUp(() => consumer.end?.())
  const consuming = consumer.run()
  const all = KEYS.flatMap((key) => Array.from({ length: COUNT }, (_, place) => `${key}#${place + 1}`))
  await expect.poll(async () => (await handled()).length).toBeGreaterThanOrEqual(all.length)
  await consumer.stop()
  await consuming
  expect(await handled()).toEqual(all)
  for (const { key, expected, seq, ...gap } of gaps) {
    expect(gap).toEqual({ topic })
    // What is between the two numbers is what was lost, and nothing else.
    for (let number = expected; number < seq; number++) expect(missing).toContain(`${key}#${number}`)
  }
  expect(new Set(gaps.map(({ key }) => key))).toEqual(new Set(Object.keys(lost)))
})
