import { Redis } from 'ioredis'
import type { OutboxEvent } from 'pg-lockstep'
import { readRedisEntry, redisSink, redisStreamName } from 'pg-lockstep/redis'
import { messageHeaders } from 'pg-lockstep/sinks'
import { startRedis } from '../server/redis.ts'
import { type Broker, cloudEventsOf, type RawHeaders } from './broker.ts'

const MAX_EVENT_BYTES = 2_000_000

/** Redis with its file, written before each answer, through ioredis. */
export const redis: Broker = {
  name: 'redis',
  async run() {
    const server = await startRedis({ appendOnly: true })
    const address = `127.0.0.1:${server.port}`
    return {
      address,
      kill: () => server.kill(),
      start: () => server.start(),
      received: (topic) => received(address, topic, (fields) => readRedisEntry(fields)),
      headers: (topic) => received(address, topic, headersIn),
      stop: () => server.stop(),
    }
  },
  async connect(address, options) {
    const client = clientAt(address)
    const { timeoutMs } = options
    const sink = redisSink({ client, timeoutMs, maxEventBytes: MAX_EVENT_BYTES, ...cloudEventsOf(options) })
    return {
      sink,
      async end() {
        await sink.close?.()
        client.disconnect()
      },
    }
  },
  async byHand(address) {
    const client = clientAt(address)
    return {
      async send(events) {
        const pipeline = client.pipeline()
        for (const event of events) {
          pipeline.call('xadd', [redisStreamName(event), `${event.seq}-0`, ...fieldsOf(event)])
        }
        for (const [error] of (await pipeline.exec()) ?? []) if (error !== null) throw error
      },
      async end() {
        client.disconnect()
      },
    }
  },
}

function clientAt(address: string): Redis {
  const [host, port] = address.split(':') as [string, string]
  const client = new Redis({ host, port: Number(port), retryStrategy: () => 50 })
  // What it says while it is down is what its commands say.
  client.on('error', () => {})
  return client
}

function fieldsOf(event: OutboxEvent): (string | Buffer)[] {
  return [...Object.entries(messageHeaders(event)).flat(), 'lockstep-body', event.body.toString()]
}

function headersIn(fields: readonly Buffer[]): RawHeaders {
  const texts = fields.map(String)
  return Object.fromEntries(texts.flatMap((name, place) => (place % 2 === 0 ? [[name, texts[place + 1] ?? '']] : [])))
}

async function received<T>(address: string, topic: string, read: (fields: Buffer[]) => T): Promise<T[]> {
  const client = clientAt(address)
  try {
    const pattern = redisStreamName({ topic, key: '*' })
    const names: string[] = []
    for await (const found of client.scanStream({ match: pattern, count: 1000 })) names.push(...(found as string[]))
    const streams = await Promise.all([...new Set(names)].map((name) => client.xrangeBuffer(name, '-', '+')))
    return streams.flatMap((entries) => entries.map(([, fields]) => read(fields)))
  } finally {
    client.disconnect()
  }
}
