import type { Admin, Kafka, Producer, Transaction } from 'kafkajs'
import { expectTypeOf, test } from 'vitest'
import { type KafkaAdmin, type KafkaProducer, kafkaSink, type KafkaTransaction } from './kafka.ts'

test('the sink accepts objects of kafkajs', () => {
  expectTypeOf<Producer>().toExtend<KafkaProducer>()
  expectTypeOf<Transaction>().toExtend<KafkaTransaction>()
  expectTypeOf<Admin>().toExtend<KafkaAdmin>()
  const use = (kafka: Kafka): void => {
    kafkaSink({ producer: kafka.producer(), admin: kafka.admin() })
    kafkaSink({ transactional: (transactionalId) => kafka.producer({ transactionalId, idempotent: true }) })
  }
  expectTypeOf(use).toBeFunction()
})
