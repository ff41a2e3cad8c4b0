import type { Broker } from '../../../tools/brokers/broker.ts'
import { kafka } from '../../../tools/brokers/kafka.ts'
import { nats } from '../../../tools/brokers/nats.ts'
import { postgres } from '../../../tools/brokers/postgres.ts'
import { rabbitmq } from '../../../tools/brokers/rabbitmq.ts'
import { redis } from '../../../tools/brokers/redis.ts'
import { webhook } from '../../../tools/brokers/webhook.ts'

/** Those that take an event only right behind the one before it. */
export const GUARDED: readonly Broker[] = [redis, nats, postgres]

/** All that there are. */
export const BROKERS: readonly Broker[] = [...GUARDED, kafka, rabbitmq, webhook]

export function brokerNamed(name: string): Broker {
  const broker = BROKERS.find((each) => each.name === name)
  if (broker === undefined) throw new Error(`there is no broker ${name}`)
  return broker
}
