import { randomBytes } from 'node:crypto'
import { afterAll, describe, expect, test } from 'vitest'
import { kafkaAvailable, startKafka } from '../../../tools/server/kafka.ts'
import { natsAvailable, startNats } from '../../../tools/server/nats.ts'
import { rabbitAvailable, startRabbit } from '../../../tools/server/rabbitmq.ts'
import { redisAvailable, startRedis } from '../../../tools/server/redis.ts'
import { testDatabase } from '../../../tools/server/testDatabase.ts'
import type { SinkName } from '../../desk.ts'
import { Desks, violations } from '../../testing/desks.ts'
import { trades } from '../index.ts'

interface Server {
  readonly url: string
  stop(): Promise<void>
}

/** A server of its own for each; Kafka is librdkafka's mock cluster. */
const servers: readonly (readonly [SinkName, () => boolean, () => Promise<Server>])[] = [
  ['nats', natsAvailable, async () => withUrl(await startNats(), (port) => `nats://127.0.0.1:${port}`)],
  ['redis', redisAvailable, async () => withUrl(await startRedis(), (port) => `redis://127.0.0.1:${port}`)],
  ['rabbitmq', rabbitAvailable, startRabbit],
  ['kafka', kafkaAvailable, kafka],
  ['webhook', () => true, () => Promise.resolve({ url: '', stop: () => Promise.resolve() })],
]

function withUrl(server: { port: number; stop(): Promise<void> }, url: (port: number) => string): Server {
  return { url: url(server.port), stop: () => server.stop() }
}

async function kafka(): Promise<Server> {
  const server = await startKafka()
  return { url: server.brokers.join(','), stop: () => server.stop() }
}

const secret = `whsec_${randomBytes(32).toString('base64')}`
const token = 'a-token-that-nobody-knows'
const order = { symbol: 'ACME', side: 'buy', quantity: 1, price: 100 }
const authorization = `Bearer ${token}`

describe.each(servers)('trades through %s', async (name, isAvailable, start) => {
  if (!isAvailable()) return test.skip('is not installed', () => undefined)
  const database = await testDatabase()
  const server = await start()
  afterAll(() => server.stop())
  const sink = { name, url: server.url, secret, authorization }
  const desks = await Desks.start(database, [trades], { sink, token })

  test('are booked once each, in order, by two desks, without the local log', async () => {
    const post = async (turn: number): Promise<number> => {
      const headers = { authorization, 'content-type': 'application/json' }
      const init = { method: 'POST', headers, body: JSON.stringify(order) }
      return (await desks.ask(`/portfolios/n${turn % 2}/trades`, init)).status
    }
    // A portfolio comes first, and the others when its event has arrived: a reader finds what is new.
    expect(await post(0)).toBe(201)
    await expect.poll(async () => violations(await trades.check(desks.pool))).toEqual([])
    const statuses = await Promise.all(Array.from({ length: 19 }, (_, turn) => post(turn + 1)))
    expect(new Set(statuses)).toEqual(new Set([201]))
    await expect.poll(async () => violations(await trades.check(desks.pool))).toEqual([])
    const [booked, logged] = await trades.check(desks.pool)
    expect([booked?.looked, logged?.looked]).toEqual([20, 0])
    const { text } = await desks.ask('/portfolios/n1/trades', { headers: { authorization } })
    expect((JSON.parse(text) as { seq: number }[]).map(({ seq }) => seq)).toEqual(
      Array.from({ length: 10 }, (_, at) => at + 1),
    )
  }, 180_000)

  test.runIf(name === 'webhook')('rejects a webhook without the signature', async () => {
    const init = { method: 'POST', headers: { authorization }, body: '{"tradeId":"1"}' }
    const answer = await desks.ask('/webhooks/trades', init)
    expect([answer.status, answer.body['code']]).toEqual([401, 'webhook-unverified'])
  })
})
