import { kafka } from '../../tools/brokers/kafka.ts'
import { kafkaAvailable } from '../../tools/server/kafka.ts'
import { benchOf } from './sinkBench.conformance.ts'
import { describeSink } from './sinks.conformance.ts'
import { describe } from 'vitest'

describe.skipIf(!kafkaAvailable())('the Kafka sink', () => {
  describeSink('Kafka', () => benchOf(kafka, { again: 'recognisable', tooLarge: 1_000_000 }))
})
