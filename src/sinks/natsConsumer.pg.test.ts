import { jetstream, jetstreamManager } from '@nats-io/jetstream'
import { connect } from '@nats-io/transport-node'
import { nats } from '../../tools/brokers/nats.ts'
import { describeConsumer } from '../consumers/consumers.conformance.ts'
import { brokerBench } from './brokerConsumers.conformance.ts'
import { natsConsumer, natsSubject } from './nats.ts'

describeConsumer('A consumer of JetStream', () =>
  brokerBench({
    broker: nats,
    // The sink keeps it out.
    deliversAgain: false,
    async open(address, name, topic, options, handler) {
      const client = await connect({ servers: address, maxReconnectAttempts: -1, reconnectTimeWait: 50 })
      const manager = await jetstreamManager(client)
      const filter = natsSubject({ topic, key: 'KEY' }, 'events.{topic}.{key}').replace(/KEY$/, '>')
      await manager.consumers.add('EVENTS', {
        durable_name: name,
        ack_policy: 'explicit',
        filter_subject: filter,
        max_ack_pending: 10_000,
      })
      const consumer = natsConsumer(
        name,
        { ...options, consumer: await jetstream(client).consumers.get('EVENTS', name) },
        handler,
      )
      return Object.assign(consumer, { end: () => client.close() })
    },
  }),
)
