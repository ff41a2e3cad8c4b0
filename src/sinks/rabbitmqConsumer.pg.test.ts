import { connect } from 'amqplib'
import { EXCHANGE, rabbitmq } from '../../tools/brokers/rabbitmq.ts'
import { describeConsumer } from '../consumers/consumers.conformance.ts'
import { brokerBench } from './brokerConsumers.conformance.ts'
import { rabbitmqConsumer } from './rabbitmq.ts'

const urlOf = (address: string): string => `amqp://guest:guest@${address}`

describeConsumer('A consumer of RabbitMQ', () =>
  brokerBench({
    broker: rabbitmq,
    deliversAgain: true,
    async prepare(address, topic) {
      const connection = await connect(urlOf(address))
      const channel = await connection.createChannel()
      await channel.assertQueue(topic, { durable: true })
      await channel.bindQueue(topic, EXCHANGE, topic)
      await connection.close()
    },
    open(address, name, topic, options, handler) {
      return Promise.resolve(
        rabbitmqConsumer(name, { ...options, connect: () => connect(urlOf(address)), queue: topic }, handler),
      )
    },
  }),
)
