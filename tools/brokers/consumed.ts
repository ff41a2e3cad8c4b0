import { jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect as connectToNats, nanos } from '@nats-io/transport-node'
import { connect as connectToRabbit } from 'amqplib'
import { Redis } from 'ioredis'
import type { BrokerConsumer, BrokerConsumerOptions, EventHandler } from 'pg-lockstep'
import { kafkaConsumer } from 'pg-lockstep/kafka'
import { natsConsumer, natsSubject } from 'pg-lockstep/nats'
import { rabbitmqConsumer } from 'pg-lockstep/rabbitmq'
import { redisConsumer, type RedisConsumerOptions } from 'pg-lockstep/redis'
import type { Broker } from './broker.ts'
import { kafka, kafkaThrough } from './kafka.ts'
import { nats } from './nats.ts'
import { EXCHANGE, rabbitmq } from './rabbitmq.ts'
import { redis } from './redis.ts'

/** A real broker with our consumer on it, as the tests and the attack use it. */
export interface ConsumedBroker {
  readonly broker: Broker
  /** Whether what is sent a second time is delivered a second time. */
  readonly deliversAgain: boolean
  /** A topic may have to be made, and what is in between. */
  prepare?(address: string, topic: string): Promise<void>
  /** A consumer with a client of its own, as a process has it. `end` ends the client, where the consumer does not. */
  open(
    address: string,
    name: string,
    topic: string,
    options: BrokerConsumerOptions,
    handler: EventHandler,
  ): Promise<BrokerConsumer & { end?(): Promise<void> }>
}

/** What a process has in its hands is another one's so long after it has gone. */
const GONE_AFTER_MS = 5000
/** The least that a Kafka takes. */
const KAFKA_SESSION_MS = 6000

const onRedis: ConsumedBroker = {
  broker: redis,
  // The sink keeps it out.
  deliversAgain: false,
  open(address, name, topic, options, handler) {
    const [host, port] = address.split(':') as [string, string]
    const client = new Redis({ host, port: Number(port), retryStrategy: () => 50 })
    client.on('error', () => undefined)
    const given = { ...options, client, topics: [topic], pollMs: 5, discoverMs: 20, ttlMs: GONE_AFTER_MS }
    const consumer = redisConsumer(name, given as unknown as RedisConsumerOptions, handler)
    return Promise.resolve(Object.assign(consumer, { end: async () => client.disconnect() }))
  },
}

const onNats: ConsumedBroker = {
  broker: nats,
  // The sink keeps it out.
  deliversAgain: false,
  async open(address, name, topic, options, handler) {
    const client = await connectToNats({ servers: address, maxReconnectAttempts: -1, reconnectTimeWait: 50 })
    const manager = await jetstreamManager(client)
    const filter = natsSubject({ topic, key: 'KEY' }, 'events.{topic}.{key}').replace(/KEY$/, '>')
    await manager.consumers.add('EVENTS', {
      durable_name: name,
      ack_policy: 'explicit',
      ack_wait: nanos(GONE_AFTER_MS),
      filter_subject: filter,
      max_ack_pending: 10_000,
    })
    const consumer = await jetstream(client).consumers.get('EVENTS', name)
    return Object.assign(natsConsumer(name, { ...options, consumer }, handler), { end: () => client.close() })
  },
}

const urlOf = (address: string): string => `amqp://guest:guest@${address}`

const onRabbit: ConsumedBroker = {
  broker: rabbitmq,
  deliversAgain: true,
  async prepare(address, topic) {
    const connection = await connectToRabbit(urlOf(address))
    const channel = await connection.createChannel()
    await channel.assertQueue(topic, { durable: true })
    await channel.bindQueue(topic, EXCHANGE, topic)
    await connection.close()
  },
  open(address, name, topic, options, handler) {
    const given = { ...options, connect: () => connectToRabbit(urlOf(address)), queue: topic }
    return Promise.resolve(rabbitmqConsumer(name, given, handler))
  },
}

const onKafka: ConsumedBroker = {
  broker: kafka,
  deliversAgain: true,
  open(address, name, topic, options, handler) {
    const group = { groupId: name, sessionTimeout: KAFKA_SESSION_MS, heartbeatInterval: 500, maxWaitTimeInMs: 50 }
    const consumer = () => kafkaThrough(address).consumer(group)
    return Promise.resolve(kafkaConsumer(name, { ...options, consumer, topics: [topic] }, handler))
  },
}

/** By the names of the brokers. */
export const consumedBrokers = { redis: onRedis, nats: onNats, rabbitmq: onRabbit, kafka: onKafka } as const
