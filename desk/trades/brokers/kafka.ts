import { Kafka, logLevel } from 'kafkajs'
import { kafkaSink } from 'pg-lockstep/kafka'
import { readMessage } from 'pg-lockstep/sinks'
import type { Desk, DeskEvents } from '../../desk.ts'
import { book, READER } from '../book.ts'
import { type Broker, TOPIC } from './broker.ts'

/** Shorter than the sink's own, so that kafkajs gives up first. */
const REQUEST_TIMEOUT_MS = 8_000
const MAX_WAIT_MS = 200

/** Kafka: the portfolio is the message's key, so that its events stay in one partition. `url`: brokers, with commas between. */
export async function kafka({ lockstep }: Desk, url: string): Promise<Broker> {
  const brokers = url.replace(/^kafka:\/\//, '').split(',')
  const cluster = new Kafka({ brokers, requestTimeout: REQUEST_TIMEOUT_MS, logLevel: logLevel.NOTHING })
  // Nothing is tried again behind the dispatcher's back.
  const [producer, admin] = [cluster.producer({ retry: { retries: 0 } }), cluster.admin()]
  await Promise.all([producer.connect(), admin.connect()])
  return {
    sink: kafkaSink({ producer, admin }),
    async close() {
      await Promise.all([producer.disconnect(), admin.disconnect()])
    },
    async read(signal) {
      const consumer = cluster.consumer({ groupId: READER, maxWaitTimeInMs: MAX_WAIT_MS })
      try {
        await consumer.connect()
        await consumer.subscribe({ topic: TOPIC, fromBeginning: true })
        await new Promise<void>((resolve, reject) => {
          signal.addEventListener('abort', () => resolve(), { once: true })
          if (signal.aborted) resolve()
          // One that kafkajs does not start again by itself.
          consumer.on(consumer.events.CRASH, ({ payload }) => {
            if (!payload.restart) reject(payload.error)
          })
          const running = consumer.run({
            // Its offset is committed after this has returned: a message that was not booked comes again.
            eachMessage: async ({ message }) => {
              await book(lockstep, [readMessage<DeskEvents['trades']>(message.headers ?? {}, message.value)])
            },
          })
          running.catch(reject)
        })
      } finally {
        await consumer.disconnect()
      }
    },
  }
}
