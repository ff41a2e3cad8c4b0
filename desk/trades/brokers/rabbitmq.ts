import { type Channel, connect, type ConsumeMessage } from 'amqplib'
import { rabbitmqSink } from 'pg-lockstep/rabbitmq'
import { readMessage } from 'pg-lockstep/sinks'
import type { Desk, DeskEvents } from '../../desk.ts'
import { book, READER } from '../book.ts'
import { type Broker, TOPIC } from './broker.ts'

const EXCHANGE = 'lockstep-desk'
const PREFETCH = 20

/** RabbitMQ: an exchange, and a queue of the reader. */
export async function rabbitmq({ lockstep }: Desk, url: string): Promise<Broker> {
  // The queue is there before the first message: one that reaches no queue is not taken.
  const first = await connect(url)
  first.on('error', () => {})
  await declare(await first.createChannel())
  await first.close()
  return {
    sink: rabbitmqSink({ connect: () => connect(url), exchange: EXCHANGE }),
    close: async () => {},
    async read(signal) {
      const connection = await connect(url)
      connection.on('error', () => {})
      const channel = await connection.createChannel()
      // One after the other: what was given out together is handled in its order.
      let queue = Promise.resolve()
      try {
        await declare(channel)
        await channel.prefetch(PREFETCH)
        await new Promise<void>((resolve, reject) => {
          signal.addEventListener('abort', () => resolve(), { once: true })
          if (signal.aborted) resolve()
          connection.on('close', () => reject(new Error('RabbitMQ has closed the connection.')))
          const take = (message: ConsumeMessage | null): void => {
            if (message === null) return reject(new Error('RabbitMQ has cancelled the consumer.'))
            queue = queue.then(async () => {
              if (signal.aborted) return
              await book(lockstep, [
                readMessage<DeskEvents['trades']>(message.properties.headers ?? {}, message.content),
              ])
              channel.ack(message)
            })
            // What was not acknowledged comes again, in its order, when the connection is closed.
            queue.catch(reject)
          }
          channel.consume(READER, take).catch(reject)
        })
      } finally {
        await queue.catch(() => undefined)
        await connection.close().catch(() => undefined)
      }
    },
  }
}

async function declare(channel: Channel): Promise<void> {
  await channel.assertExchange(EXCHANGE, 'topic', { durable: true })
  await channel.assertQueue(READER, { durable: true, arguments: { 'x-single-active-consumer': true } })
  await channel.bindQueue(READER, EXCHANGE, TOPIC)
}
