import pg from 'pg'
import { describe, expect, test } from 'vitest'
import { kafkaAvailable, startKafka } from '../../tools/server/kafka.ts'
import { natsAvailable, startNats } from '../../tools/server/nats.ts'
import { startPostgres } from '../../tools/server/postgres.ts'
import { rabbitAvailable, startRabbit } from '../../tools/server/rabbitmq.ts'
import { redisAvailable, startRedis } from '../../tools/server/redis.ts'
import { testDatabase } from '../../tools/server/testDatabase.ts'
import { guideShows } from '../../tools/server/testing/guideProgram.ts'
import { run as kafka } from './kafka.ts'
import { run as nats } from './nats.ts'
import { run as postgresSink } from './postgres-sink.ts'
import { run as rabbitmq } from './rabbitmq.ts'
import { run as redis } from './redis.ts'
import { run as webhook } from './webhook.ts'

interface Broker {
  readonly address: string
  stop(): Promise<unknown>
}

interface Example {
  readonly name: string
  readonly isThere?: () => boolean
  readonly start?: () => Promise<Broker>
  readonly run: (pool: pg.Pool, address: string) => Promise<object>
  readonly outcome: object
}

/** Every number once, in order, in each portfolio. */
function inOrder(count: number): Record<string, number[]> {
  const numbers = Array.from({ length: count }, (_, n) => n + 1)
  return { growth: numbers, income: numbers, cash: numbers }
}

const onPort = (server: { readonly port: number; stop(): Promise<unknown> }): Broker => {
  return { address: `127.0.0.1:${server.port}`, stop: () => server.stop() }
}
const some: unknown = expect.toSatisfy((count: number) => count > 0)
const [ofTwenty, ofTen] = [
  { growth: 570, income: 590, cash: 610 },
  { growth: 135, income: 145, cash: 155 },
]

/** Each delivers some or all of its events twice; some lose answers, and one has a portfolio that is closed for a while. */
const examples: readonly Example[] = [
  {
    name: 'kafka',
    isThere: kafkaAvailable,
    async start() {
      const server = await startKafka()
      return { address: server.brokers[0] as string, stop: () => server.stop() }
    },
    run: kafka,
    outcome: { handled: inOrder(20), positions: ofTwenty, agree: true, duplicates: 60 },
  },
  {
    name: 'nats',
    isThere: natsAvailable,
    start: async () => onPort(await startNats()),
    run: nats,
    outcome: { booked: inOrder(20), agree: true, duplicates: 12 },
  },
  {
    name: 'postgres-sink',
    async start() {
      const server = await startPostgres()
      return { address: server.url(), stop: () => server.stop('immediate') }
    },
    run: postgresSink,
    outcome: { booked: inOrder(20), positions: ofTwenty, agree: true, duplicates: 60, refusals: some },
  },
  {
    name: 'rabbitmq',
    isThere: rabbitAvailable,
    start: async () => onPort(await startRabbit()),
    run: rabbitmq,
    outcome: { booked: inOrder(10), positions: ofTen, again: some },
  },
  {
    name: 'redis',
    isThere: redisAvailable,
    start: async () => onPort(await startRedis({ appendOnly: true })),
    run: redis,
    outcome: { booked: inOrder(20), agree: true, duplicates: 10 },
  },
  { name: 'webhook', run: webhook, outcome: { booked: inOrder(10), positions: ofTen, again: some, toStrangers: 401 } },
]

describe.each(examples)('the example of $name', async ({ name, isThere, start, run, outcome }) => {
  const database = await testDatabase()

  test.skipIf(isThere?.() === false)('books every trade once and in order', async () => {
    const broker = await start?.()
    const pool = new pg.Pool({ connectionString: database.url })
    try {
      expect(await run(pool, broker?.address ?? '')).toMatchObject(outcome)
    } finally {
      await pool.end()
      await broker?.stop()
    }
  })

  test('is shown in the guide', () => {
    expect(guideShows(`docs/guides/${name}.md`, `examples/sinks/${name}.ts`)).toBe(true)
  })
})
