import { AckPolicy, jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect } from '@nats-io/transport-node'
import { natsSink, readNatsMessage } from 'pg-lockstep/nats'
import type { Desk, DeskEvents } from '../../desk.ts'
import { book, READER } from '../book.ts'
import { type Broker, TOPIC } from './broker.ts'

const STREAM = 'TRADES'

/** JetStream: one subject for each portfolio, in which the server itself keeps the order. */
export async function nats({ lockstep }: Desk, url: string): Promise<Broker> {
  const client = await connect({ servers: url, maxReconnectAttempts: -1 })
  const manager = await jetstreamManager(client)
  // Adding what is there already, in the same form, changes nothing.
  await manager.streams.add({ name: STREAM, subjects: [`${TOPIC}.>`] })
  return {
    sink: natsSink({ client, stream: STREAM }),
    close: () => client.close(),
    /** All portfolios through one durable consumer. */
    async read(signal) {
      // One at a time: one that comes again comes before the next.
      await manager.consumers.add(STREAM, { durable_name: READER, ack_policy: AckPolicy.Explicit, max_ack_pending: 1 })
      const consumer = await jetstream(client).consumers.get(STREAM, READER)
      const messages = await consumer.consume()
      const stop = (): void => messages.stop()
      signal.addEventListener('abort', stop)
      if (signal.aborted) stop()
      try {
        for await (const message of messages) {
          await book(lockstep, [readNatsMessage<DeskEvents['trades']>(message)])
          message.ack()
        }
      } finally {
        signal.removeEventListener('abort', stop)
        await messages.close()
      }
    },
  }
}
