import { describe } from 'vitest'
import { rabbitmq } from '../../tools/brokers/rabbitmq.ts'
import { rabbitAvailable } from '../../tools/server/rabbitmq.ts'
import { benchOf } from './sinkBench.conformance.ts'
import { describeSink } from './sinks.conformance.ts'

describe.skipIf(!rabbitAvailable())('against a real server', () => {
  describeSink('RabbitMQ', () =>
    benchOf(rabbitmq, {
      again: 'recognizable',
      tooLarge: 1_000_001,
      cloudEvents: { prefix: 'cloudEvents_', text: 'Größe "1" 100%' },
    }),
  )
})
