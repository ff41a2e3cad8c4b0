import { Redis } from 'ioredis'
import { redis } from '../../tools/brokers/redis.ts'
import { describeConsumer } from '../consumers/consumers.conformance.ts'
import { brokerBench } from './brokerConsumers.conformance.ts'
import { redisConsumer, type RedisConsumerOptions } from './redis.ts'

describeConsumer('A consumer of Redis Streams', () =>
  brokerBench({
    broker: redis,
    // The sink keeps it out.
    deliversAgain: false,
    open(address, name, topic, options, handler) {
      const [host, port] = address.split(':') as [string, string]
      const client = new Redis({ host, port: Number(port), retryStrategy: () => 50 })
      client.on('error', () => undefined)
      const given = { ...options, client, topics: [topic], pollMs: 5, discoverMs: 20, ttlMs: 5000 }
      const consumer = redisConsumer(name, given as unknown as RedisConsumerOptions, handler)
      return Promise.resolve(Object.assign(consumer, { end: async () => client.disconnect() }))
    },
  }),
)
