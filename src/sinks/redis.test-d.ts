import type { Cluster, Redis } from 'ioredis'
import { createClient, createClientPool, createCluster } from 'redis'
import { expectTypeOf, test } from 'vitest'
import type { Sink } from '../outbox/index.ts'
import { type RedisClient, redisSink } from './redis.ts'

test('clients of ioredis are taken as they are', () => {
  expectTypeOf<Redis>().toExtend<RedisClient>()
  expectTypeOf<Cluster>().toExtend<RedisClient>()
})

test('clients of node-redis are taken as they are', () => {
  const client = createClient()
  const pool = createClientPool()
  expectTypeOf(client).toExtend<RedisClient>()
  expectTypeOf(pool).toExtend<RedisClient>()
  expectTypeOf(redisSink({ client })).toEqualTypeOf<Sink>()
})

test("node-redis's cluster wants to know the key: through one line", () => {
  const cluster = createCluster({ rootNodes: [] })
  // @ts-expect-error its sendCommand() has other parameters
  expectTypeOf(redisSink).toBeCallableWith({ client: cluster })
  const client: RedisClient = { sendCommand: (args) => cluster.sendCommand(args[3], false, args) }
  expectTypeOf(redisSink).toBeCallableWith({ client })
})
