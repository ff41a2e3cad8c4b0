import { kafka, kafkaThrough } from '../../tools/brokers/kafka.ts'
import { describeConsumer } from '../consumers/consumers.conformance.ts'
import { brokerBench } from './brokerConsumers.conformance.ts'
import { kafkaConsumer } from './kafka.ts'

describeConsumer('A consumer of Kafka', () =>
  brokerBench({
    broker: kafka,
    deliversAgain: true,
    open(address, name, topic, options, handler) {
      const consumer = () =>
        kafkaThrough(address).consumer({
          groupId: name,
          sessionTimeout: 6000,
          heartbeatInterval: 500,
          maxWaitTimeInMs: 50,
        })
      return Promise.resolve(kafkaConsumer(name, { ...options, consumer, topics: [topic] }, handler))
    },
  }),
)
