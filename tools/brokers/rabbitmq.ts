import { setTimeout as delay } from 'node:timers/promises'
import { connect } from 'amqplib'
import { rabbitmqSink } from 'pg-lockstep/rabbitmq'
import { messageHeaders, readMessage } from 'pg-lockstep/sinks'
import { startRabbit } from '../server/rabbitmq.ts'
import { type Broker, cloudEventsOf, type RawHeaders, streamsOf } from './broker.ts'

export const EXCHANGE = 'events'
const QUEUE = 'all-events'
/** More than the limit of the sink, so that the sink is what refuses. */
const SERVER_BYTES = 2_000_000
const SINK_BYTES = 1_000_000

const urlOf = (address: string): string => `amqp://guest:guest@${address}`

/** A RabbitMQ with a topic exchange and a durable queue for everything. */
export const rabbitmq: Broker = {
  name: 'rabbitmq',
  async run() {
    const server = await startRabbit({ maxMessageBytes: SERVER_BYTES })
    try {
      const connection = await connect(server.url)
      const channel = await connection.createChannel()
      await channel.assertExchange(EXCHANGE, 'topic', { durable: true })
      await channel.assertQueue(QUEUE, { durable: true })
      await channel.bindQueue(QUEUE, EXCHANGE, '#')
      await connection.close()
    } catch (error) {
      await server.stop()
      throw error
    }
    return {
      address: `127.0.0.1:${server.port}`,
      kill: () => server.kill(),
      start: () => server.start(),
      stop: () => server.stop(),
      received: async (topic) =>
        (await everything(server.url))
          .map(({ headers, body }) => readMessage(headers, body))
          .filter((event) => event.topic === topic),
      headers: async (topic) =>
        (await everything(server.url))
          .map(({ headers }) => headers)
          .filter((headers) => headers['lockstep-topic'] === topic),
    }
  },
  connect(address, options) {
    const sink = rabbitmqSink({
      ...cloudEventsOf(options),
      connect: () => connect(urlOf(address)),
      exchange: EXCHANGE,
      timeoutMs: options.timeoutMs,
      maxEventBytes: SINK_BYTES,
    })
    return Promise.resolve({ sink, end: async () => sink.close?.() })
  },
  async byHand(address) {
    const connection = await connect(urlOf(address))
    const channel = await connection.createConfirmChannel()
    return {
      async send(events) {
        await Promise.all(
          streamsOf(events).map(
            (stream) =>
              new Promise<void>((resolve, reject) => {
                let at = 0
                const next = (): void => {
                  const event = stream[at++]
                  if (event === undefined) return resolve()
                  channel.publish(
                    EXCHANGE,
                    event.topic,
                    event.body,
                    {
                      persistent: true,
                      mandatory: true,
                      messageId: event.id,
                      contentType: event.contentType,
                      headers: messageHeaders(event),
                    },
                    (error: Error | null) => (error === null ? next() : reject(error)),
                  )
                  return undefined
                }
                next()
              }),
          ),
        )
      },
      end: () => connection.close(),
    }
  },
}

/** Reads the queue without taking anything from it: what is not acknowledged goes back to its place. */
async function everything(url: string): Promise<{ readonly headers: RawHeaders; readonly body: Buffer }[]> {
  const connection = await connect(url)
  try {
    const channel = await connection.createChannel()
    const { messageCount } = await channel.checkQueue(QUEUE)
    const events: { headers: RawHeaders; body: Buffer }[] = []
    if (messageCount === 0) return events
    await new Promise<void>((resolve, reject) => {
      channel.on('error', reject)
      channel
        .consume(QUEUE, (message) => {
          if (message === null) return
          events.push({ headers: { ...message.properties.headers }, body: message.content })
          if (events.length === messageCount) resolve()
        })
        .catch(reject)
    })
    await channel.close()
    // What was not acknowledged is back a moment after the channel is closed.
    const watching = await connection.createChannel()
    while ((await watching.checkQueue(QUEUE)).messageCount < messageCount) await delay(5)
    return events
  } finally {
    await connection.close()
  }
}
