import { AckPolicy, jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect, type NatsConnection } from '@nats-io/transport-node'
import { natsSink, readNatsMessage } from 'pg-lockstep/nats'
import type { Desk, DeskEvents } from '../desk.ts'
import { book, READER } from './book.ts'

const STREAM = 'TRADES'

/** A connection, and the JetStream stream that takes the trades. */
export async function connectNats(url: string): Promise<NatsConnection> {
  const client = await connect({ servers: url, maxReconnectAttempts: -1 })
  const manager = await jetstreamManager(client)
  // Adding what is there already, in the same form, changes nothing.
  await manager.streams.add({ name: STREAM, subjects: ['trades.>'] })
  return client
}

/** A sink: one subject for each portfolio, in which JetStream itself keeps the order. */
export function throughNats(client: NatsConnection) {
  return natsSink({ client, stream: STREAM })
}

/** Reads all portfolios through one durable consumer. */
export async function readNats(client: NatsConnection, { lockstep }: Desk, signal: AbortSignal): Promise<void> {
  const manager = await jetstreamManager(client)
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
}
