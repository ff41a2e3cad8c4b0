import { execFile } from 'node:child_process'
import { connect as connectSocket } from 'node:net'
import { promisify } from 'node:util'
import { type Admin, Kafka, type KafkaConfig, logLevel, type Producer } from 'kafkajs'
import { kafkaSink } from 'pg-lockstep/kafka'
import { messageHeaders, readMessage, type ReceivedEvent } from 'pg-lockstep/sinks'
import { startKafka } from '../server/kafka.ts'
import { type Broker, cloudEventsOf, type RawHeaders } from './broker.ts'

const run = promisify(execFile)
const MOST_OUTPUT = 1 << 30

/** kafkajs, all of whose connections lead to one address, whatever the brokers say where they are. */
export function kafkaThrough(address: string, config: Partial<KafkaConfig> = {}): Kafka {
  const [host, port] = address.split(':') as [string, string]
  return new Kafka({
    brokers: [address],
    clientId: 'lockstep',
    logLevel: logLevel.NOTHING,
    socketFactory: ({ onConnect }) => connectSocket({ host, port: Number(port), noDelay: true }, onConnect),
    ...config,
  })
}

/** kafkajs as the guide has it: an answer is given up before the sink gives it up, and nothing is retried behind its back. */
async function connected(address: string, timeoutMs: number): Promise<{ producer: Producer; admin: Admin }> {
  const kafka = kafkaThrough(address, {
    requestTimeout: timeoutMs * 0.8,
    connectionTimeout: timeoutMs / 2,
    retry: { retries: 0 },
  })
  const [producer, admin] = [kafka.producer({ retry: { retries: 0 } }), kafka.admin()]
  await Promise.all([producer.connect(), admin.connect()])
  return { producer, admin }
}

/** Everything of a topic, partition by partition in its order. */
export async function receivedFrom(broker: string, topic: string): Promise<ReceivedEvent[]> {
  return (await messagesFrom(broker, topic)).map(({ headers, body }) => readMessage(headers, body))
}

async function messagesFrom(broker: string, topic: string): Promise<{ headers: RawHeaders; body: Buffer | null }[]> {
  const quick = ['-X', 'fetch.wait.max.ms=5', '-X', 'fetch.error.backoff.ms=5']
  const args = ['-C', '-q', '-e', '-J', '-b', broker, '-t', topic, '-o', 'beginning', ...quick]
  // Its JSON has the bytes as they are: as latin1 each is one character, and none is lost.
  const { stdout } = await run('kcat', args, { encoding: 'latin1', maxBuffer: MOST_OUTPUT })
  const lines = stdout.split('\n').filter((line) => line !== '')
  return lines.map((line) => {
    const { headers = [], payload } = JSON.parse(line) as { headers?: string[]; payload: string | null }
    const named: Record<string, string> = {}
    for (let at = 0; at < headers.length; at += 2) {
      named[headers[at] as string] = Buffer.from(headers[at + 1] as string, 'latin1').toString()
    }
    return { headers: named, body: payload === null ? null : Buffer.from(payload, 'latin1') }
  })
}

/** librdkafka's mock cluster, and kafkajs. */
export const kafka: Broker = {
  name: 'kafka',
  async run() {
    const server = await startKafka()
    const direct = server.brokers[0] as string
    return {
      address: server.address,
      kill: () => server.kill(),
      start: () => server.start(),
      received: (topic) => receivedFrom(direct, topic),
      headers: async (topic) => (await messagesFrom(direct, topic)).map(({ headers }) => headers),
      stop: () => server.stop(),
    }
  },
  async connect(address, options) {
    const { timeoutMs } = options
    const { producer, admin } = await connected(address, timeoutMs)
    const sink = kafkaSink({ producer, admin, timeoutMs, ...cloudEventsOf(options) })
    return {
      sink,
      async end() {
        await sink.close?.()
        await Promise.all([producer.disconnect(), admin.disconnect()])
      },
    }
  },
  async byHand(address) {
    const { producer, admin } = await connected(address, 10_000)
    await admin.disconnect()
    return {
      async send(events) {
        const topics = new Map<string, { key: string; value: Buffer; headers: Record<string, string> }[]>()
        for (const event of events) {
          const message = { key: event.key, value: event.body, headers: messageHeaders(event) }
          const messages = topics.get(event.topic)
          if (messages === undefined) topics.set(event.topic, [message])
          else messages.push(message)
        }
        await producer.sendBatch({ topicMessages: [...topics].map(([topic, messages]) => ({ topic, messages })) })
      },
      end: () => producer.disconnect(),
    }
  },
}
