import { jetstream } from '@nats-io/jetstream'
import { connect, headers } from '@nats-io/transport-node'
import { Redis } from 'ioredis'
import type { OutboxEvent, Sink } from 'pg-lockstep'
import { natsSubject } from 'pg-lockstep/nats'
import { redisStreamName } from 'pg-lockstep/redis'
import { messageHeaders } from 'pg-lockstep/sinks'
import { postgres } from '../../../tools/brokers/postgres.ts'

/** The planted bug: sinks that send the same messages to the same destinations, and assume that no sender is late. */
export const UNGUARDED: Readonly<Record<string, (address: string) => Promise<Sink>>> = {
  async redis(address) {
    const [host, port] = address.split(':') as [string, string]
    const client = new Redis({ host, port: Number(port), retryStrategy: () => 50 })
    client.on('error', () => {})
    return sinkOf(async (events) => {
      const pipeline = client.pipeline()
      for (const event of events) {
        const fields = Object.entries(messageHeaders(event)).flat()
        pipeline.call('xadd', [redisStreamName(event), '*', ...fields, 'lockstep-body', event.body])
      }
      for (const [error] of (await pipeline.exec()) ?? []) if (error !== null) throw error
    })
  },
  async nats(address) {
    const stream = jetstream(await connect({ servers: address, maxReconnectAttempts: -1, reconnectTimeWait: 50 }))
    return sinkOf(async (events) => {
      for (const event of events) {
        const all = headers()
        for (const [name, value] of Object.entries(messageHeaders(event))) all.set(name, value)
        await stream.publish(natsSubject(event, 'events.{topic}.{key}'), event.body, { headers: all })
      }
    })
  },
  async postgres(address) {
    const hand = await postgres.byHand(address)
    return sinkOf((events) => hand.send(events))
  },
}

function sinkOf(publish: (events: readonly OutboxEvent[]) => Promise<void>): Sink {
  return {
    name: 'unguarded',
    async send(events) {
      await publish(events)
      return events.map(() => 'sent' as const)
    },
  }
}
