import { expect, test } from 'vitest'
import type { Delivery, Sink } from '../outbox/index.ts'
import { kafkaSink, type KafkaTopicMessages } from './kafka.ts'
import { natsSink } from './nats.ts'
import { rabbitmqSink } from './rabbitmq.ts'
import { redisSink } from './redis.ts'
import { contextOf, eventOf } from './sinkBench.conformance.ts'
import { webhookSink } from './webhook.ts'
import { receiver, SECRET } from './webhookReceiver.conformance.ts'

/** A function of the caller that says where an event goes, and says nothing for one stream. */

/** Says `to` for every stream but one. In JavaScript, or with a cast, it can. */
const exceptLost =
  <T>(to: T) =>
  ({ key }: { key: string }): T =>
    key === 'lost' ? (undefined as T) : to

const unreachable = (): never => {
  throw new Error('it is not asked')
}

async function answersOf(sink: Sink, key: string): Promise<readonly Delivery[]> {
  const answers = await sink.send([eventOf('t', key, 1), eventOf('t', key, 2)], contextOf())
  await sink.close?.()
  return answers
}

test('a webhook without a url refuses that event, and sends the others', async () => {
  const { url } = await receiver((_, response) => void response.writeHead(200).end())
  const sink = webhookSink({ url: exceptLost(url), secret: SECRET, allowPrivateAddresses: true })
  const answers = await sink.send([eventOf('t', 'lost', 1), eventOf('t', 'a', 1)], contextOf())
  expect(answers).toMatchObject([
    { refused: expect.stringContaining('#1 of t/lost has no receiver') as string },
    'sent',
  ])
  await sink.close?.()
})

test('a Kafka topic that is nothing refuses the events of that topic', async () => {
  const sent: string[] = []
  const producer = {
    sendBatch: async ({ topicMessages }: { topicMessages: KafkaTopicMessages[] }) =>
      void sent.push(...topicMessages.map(({ topic }) => topic)),
  }
  const sink = kafkaSink({ producer, topic: (topic) => (topic === 'lost' ? (undefined as unknown as string) : topic) })
  const answers = await sink.send([eventOf('lost', 'k', 1), eventOf('a', 'k', 1)], contextOf())
  expect(answers).toMatchObject([{ refused: expect.stringContaining('The topic lost') as string }, 'sent'])
  expect(sent).toEqual(['a'])
})

const NATS = { info: undefined, request: unreachable, flush: unreachable }
const REDIS = { call: unreachable, pipeline: unreachable }

test.each<[string, string, Sink]>([
  ['NATS stream', 'stream is undefined', natsSink({ client: NATS, stream: exceptLost('EVENTS') })],
  ['NATS start', 'start gave undefined', natsSink({ client: NATS, stream: 'EVENTS', start: exceptLost(1) })],
  ['Redis start', 'start gave undefined', redisSink({ client: REDIS, start: exceptLost(1) })],
])('a %s that is nothing refuses the event before anything is sent', async (_, why, sink) => {
  const [first, second] = await answersOf(sink, 'lost')
  expect(first).toMatchObject({ refused: expect.stringContaining(`#1 of t/lost has no place: ${why}`) as string })
  expect(second).not.toBe('sent')
})

test('a routing key that is nothing refuses the event', async () => {
  const channel = {
    on: () => undefined,
    close: async () => undefined,
    publish: unreachable,
    checkExchange: unreachable,
  }
  const connection = { on: () => undefined, close: async () => undefined, createConfirmChannel: async () => channel }
  const sink = rabbitmqSink({ connect: async () => connection, exchange: 'e', routingKey: exceptLost('r') })
  const [first, second] = await answersOf(sink, 'lost')
  expect(first).toMatchObject({ refused: expect.stringContaining('its routing key is undefined') as string })
  expect(second).not.toBe('sent')
})
