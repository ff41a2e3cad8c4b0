import type { Cluster, Redis } from 'ioredis'
import { createClient, createClientPool, createCluster } from 'redis'
import { expectTypeOf, test } from 'vitest'
import type { Sink } from '../outbox/index.ts'
import { type RedisClient, redisSink } from './redis.ts'

test('the sink accepts clients of ioredis', () => {
  expectTypeOf<Redis>().toExtend<RedisClient>()
  expectTypeOf<Cluster>().toExtend<RedisClient>()
})

test('the sink accepts clients of node-redis', () => {
  const client = createClient()
  const pool = createClientPool()
  expectTypeOf(client).toExtend<RedisClient>()
  expectTypeOf(pool).toExtend<RedisClient>()
  expectTypeOf(redisSink({ client })).toEqualTypeOf<Sink>()
})

test('a cluster of node-redis needs one line that names the key', () => {
  const cluster = createCluster({ rootNodes: [] })
  // @ts-expect-error its sendCommand() has other parameters
  expectTypeOf(redisSink).toBeCallableWith({ client: cluster })
  const client: RedisClient = { sendCommand: (args) => cluster.sendCommand(args[3], false, args) }
  expectTypeOf(redisSink).toBeCallableWith({ client })
})
