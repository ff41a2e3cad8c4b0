import { consumedBrokers } from '../../tools/brokers/consumed.ts'
import { describeConsumer } from '../consumers/consumers.conformance.ts'
import { brokerBench } from './brokerConsumers.conformance.ts'

describeConsumer('A consumer of RabbitMQ', () => brokerBench(consumedBrokers.rabbitmq))
