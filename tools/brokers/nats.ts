import { jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect, headers, type NatsConnection } from '@nats-io/transport-node'
import type { OutboxEvent } from 'pg-lockstep'
import { type NatsMessage, natsSink, natsSubject, readNatsMessage } from 'pg-lockstep/nats'
import { messageHeaders } from 'pg-lockstep/sinks'
import { startNats } from '../server/nats.ts'
import { type Broker, cloudEventsOf, type RawHeaders, streamsOf } from './broker.ts'

const STREAM = 'EVENTS'
const SUBJECT = 'events.{topic}.{key}'

/** A NATS server with JetStream on disk, and one stream for all. */
export const nats: Broker = {
  name: 'nats',
  async run() {
    const server = await startNats()
    const address = `127.0.0.1:${server.port}`
    await withClient(address, async (client) => {
      const manager = await jetstreamManager(client)
      await manager.streams.add({ name: STREAM, subjects: ['events.>'] })
    })
    return {
      address,
      kill: () => server.kill(),
      start: () => server.start(),
      received: (topic) =>
        withClient(address, (client) => received(client, topic, (message) => readNatsMessage(message))),
      headers: (topic) => withClient(address, (client) => received(client, topic, headersIn)),
      stop: () => server.stop(),
    }
  },
  async connect(address, options) {
    const client = await clientAt(address)
    const { timeoutMs } = options
    const sink = natsSink({ client, stream: STREAM, subject: SUBJECT, timeoutMs, ...cloudEventsOf(options) })
    return {
      sink,
      async end() {
        await sink.close?.()
        await client.close()
      },
    }
  },
  async byHand(address) {
    const client = await clientAt(address)
    const publisher = jetstream(client)
    return {
      async send(events) {
        const publish = async (stream: readonly OutboxEvent[]): Promise<void> => {
          for (const event of stream) {
            const options = { msgID: event.id, headers: headersOf(event) }
            await publisher.publish(natsSubject(event, SUBJECT), event.body, options)
          }
        }
        await Promise.all(streamsOf(events).map(publish))
      },
      end: () => client.close(),
    }
  },
}

function clientAt(address: string): Promise<NatsConnection> {
  return connect({ servers: address, maxReconnectAttempts: -1, reconnectTimeWait: 50, noAsyncTraces: true })
}

async function withClient<T>(address: string, use: (client: NatsConnection) => Promise<T>): Promise<T> {
  const client = await clientAt(address)
  try {
    return await use(client)
  } finally {
    await client.close()
  }
}

function headersOf(event: OutboxEvent): ReturnType<typeof headers> {
  const all = headers()
  for (const [name, value] of Object.entries(messageHeaders(event))) all.set(name, value)
  return all
}

function headersIn({ headers: all }: NatsMessage): RawHeaders {
  return Object.fromEntries([...(all ?? [])].map(([name, values]) => [name, String(values[0])]))
}

async function received<T>(client: NatsConnection, topic: string, read: (message: NatsMessage) => T): Promise<T[]> {
  const filter = natsSubject({ topic, key: 'KEY' }, SUBJECT).replace(/KEY$/, '>')
  const consumer = await jetstream(client).consumers.get(STREAM, { filter_subjects: filter })
  const { num_pending: pending } = await consumer.info()
  const events: T[] = []
  if (pending === 0) return events
  for await (const message of await consumer.consume()) {
    events.push(read(message))
    if (message.info.pending === 0) break
  }
  return events
}
