import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { BatchContext, Delivery, OutboxEvent, Sink } from '../outbox/index.ts'
import { BINDINGS, type CloudEventsOptions, headersBy, type HeadersOf } from './cloudEvents.ts'
import { AnswerTimeoutError, withTimeout } from './withTimeout.ts'
import { byTopic, chunksOf, KafkaBatch, messagesOf, type ReadyEvent, streamOf } from './kafkaBatch.ts'
import { type KafkaAdmin, type KafkaProducer, type KafkaTransactionalProducer } from './kafkaClient.ts'
import { KafkaTransactions, overFor } from './kafkaTransactions.ts'
import { SinkUse } from './sinkUse.ts'

export type { CloudEventsOptions } from './cloudEvents.ts'
export {
  type KafkaBatchDelivery,
  kafkaConsumer,
  type KafkaConsumerOptions,
  type KafkaDelivery,
  type KafkaGroupConsumer,
} from './kafkaConsumer.ts'
export type {
  KafkaAdmin,
  KafkaMessage,
  KafkaProducer,
  KafkaTopicMessages,
  KafkaTransaction,
  KafkaTransactionalProducer,
} from './kafkaClient.ts'

/** Where to, and how: either `producer` or `transactional`. */
export interface KafkaSinkOptions {
  /** A connected producer, of kafkajs or of @confluentinc/kafka-javascript. It stays yours. */
  readonly producer?: KafkaProducer
  /**
   * Creates a producer with this transactional id, not yet connected. Each batch is one transaction, and Kafka fences a dispatcher that was
   * paused. The sink connects and disconnects the producer.
   */
  readonly transactional?: (transactionalId: string) => KafkaTransactionalProducer
  /** The transactional ids are `<prefix>-<dispatcher>-<shard>`: one prefix for each database. Default `lockstep`. */
  readonly transactionalIdPrefix?: string
  /** A connected admin client, which is asked whether Kafka can be reached while no message succeeds. You close it. */
  readonly admin?: KafkaAdmin
  /** The topic at Kafka for an event's topic. Default: the same. */
  readonly topic?: (topic: string) => string
  /** The largest message with its headers, and the largest request for a topic. Default 1,000,000, the default of clients and brokers. */
  readonly maxMessageBytes?: number
  /** How long to wait for an answer. Default 10,000. */
  readonly timeoutMs?: number
  /** Adds the attributes of CloudEvents 1.0 as headers, `ce_id` and so on. Default: none. */
  readonly cloudEvents?: CloudEventsOptions
}

const KAFKA_OPTIONS: OptionNames<KafkaSinkOptions> = {
  producer: true,
  transactional: true,
  transactionalIdPrefix: true,
  admin: true,
  topic: true,
  maxMessageBytes: true,
  timeoutMs: true,
  cloudEvents: true,
}

const DEFAULT_MAX_MESSAGE_BYTES = 1_000_000
const DEFAULT_TIMEOUT_MS = 10_000

/**
 * Events to Kafka: the event's key is the message's, so that a stream stays in one partition, and everything else travels in headers.
 *
 * @example
 * import { Kafka } from 'kafkajs'
 * import { kafkaSink } from 'pg-lockstep/kafka'
 *
 * const kafka = new Kafka({ brokers: ['localhost:9092'], requestTimeout: 8000 })
 * const producer = kafka.producer({ retry: { retries: 0 } })
 * await producer.connect()
 * await lockstep.outbox.dispatcher({ sink: kafkaSink({ producer }) }).run()
 */
export function kafkaSink(options: KafkaSinkOptions): Sink {
  return new KafkaSink(checked(options))
}

interface KafkaPlan {
  readonly producer: KafkaProducer | undefined
  readonly transactions: KafkaTransactions | undefined
  readonly admin: KafkaAdmin | undefined
  readonly topicOf: (topic: string) => string
  readonly maxMessageBytes: number
  readonly timeoutMs: number
  readonly headersOf: HeadersOf
}

/** A request that was given up, and may still be in progress at the client. */
interface Late {
  readonly streams: ReadonlySet<string>
  readonly until: number
}

class KafkaSink implements Sink {
  readonly name = 'kafka'
  declare readonly healthy?: () => Promise<boolean>
  readonly #plan: KafkaPlan
  readonly #late = new Set<Late>()
  readonly #use = new SinkUse(() => this.#plan.transactions?.close())

  constructor(plan: KafkaPlan) {
    this.#plan = plan
    const { admin, timeoutMs } = plan
    if (admin === undefined) return
    this.healthy = async () => {
      try {
        await withTimeout(admin.listTopics(), timeoutMs)
        return true
      } catch {
        return false
      }
    }
  }

  async send(events: readonly OutboxEvent[], context: BatchContext): Promise<readonly Delivery[]> {
    return this.#use.track(this.#send(events, context))
  }

  open(): Promise<void> {
    return this.#use.open()
  }

  close(): Promise<void> {
    return this.#use.close()
  }

  async #send(events: readonly OutboxEvent[], context: BatchContext): Promise<readonly Delivery[]> {
    const { topicOf, maxMessageBytes, transactions, headersOf } = this.#plan
    const batch = new KafkaBatch(events, {
      topicOf,
      maxMessageBytes,
      headersOf,
      over: () => (this.#use.closed ? 'the sink is closed' : overFor(context)),
      isLate: (stream) => this.#isLate(stream),
    })
    if (transactions !== undefined) {
      await batch.send(batch.ready, (group) => transactions.commit(context, group))
      return batch.answers
    }
    const ready = this.#late.size === 0 ? batch.ready : batch.withoutLate()
    await Promise.all(
      byTopic(ready).map(async (topic) => {
        for (const chunk of chunksOf(topic, maxMessageBytes)) {
          if (!(await batch.send(chunk, (group) => this.#request(group)))) return
        }
      }),
    )
    return batch.answers
  }

  async #request(group: readonly ReadyEvent[]): Promise<void> {
    const { producer, timeoutMs } = this.#plan
    const asked = (producer as KafkaProducer).sendBatch({ topicMessages: messagesOf(group) })
    try {
      await withTimeout(asked, timeoutMs)
    } catch (error) {
      if (error instanceof AnswerTimeoutError) this.#isGoingOn(asked, group)
      throw error
    }
  }

  /** Until the client has come to an end with it, or for as long again: it may try by itself. */
  #isGoingOn(asked: Promise<unknown>, group: readonly ReadyEvent[]): void {
    const streams = new Set(group.map(({ event }) => streamOf(event)))
    const late = { streams, until: performance.now() + this.#plan.timeoutMs }
    this.#late.add(late)
    const forget = (): void => void this.#late.delete(late)
    asked.then(forget, forget)
  }

  #isLate(stream: string): boolean {
    for (const late of this.#late) {
      if (late.until < performance.now()) this.#late.delete(late)
      else if (late.streams.has(stream)) return true
    }
    return false
  }
}

function checked(options: KafkaSinkOptions): KafkaPlan {
  checkOptions('kafkaSink()', options, KAFKA_OPTIONS)
  const { producer, transactional, admin, topic = (name: string) => name } = options
  const { transactionalIdPrefix: prefix = 'lockstep' } = options
  const { maxMessageBytes = DEFAULT_MAX_MESSAGE_BYTES, timeoutMs = DEFAULT_TIMEOUT_MS } = options
  if ((producer === undefined) === (transactional === undefined)) {
    refuse('needs either `producer` or `transactional`.', 'Give it a connected producer, or a function that makes one.')
  }
  if (producer !== undefined && typeof producer.sendBatch !== 'function') {
    refuse('was given a producer without sendBatch().', 'Give it what kafka.producer() returns.')
  }
  if (transactional !== undefined && typeof transactional !== 'function') {
    refuse(
      'was given `transactional`, but no function.',
      'Give it (transactionalId) => kafka.producer({ transactionalId, … }).',
    )
  }
  if (typeof prefix !== 'string' || prefix === '') {
    refuse('was given an empty transactionalIdPrefix.', 'Give it a name of this database.')
  }
  if (admin !== undefined && typeof admin.listTopics !== 'function') {
    refuse('was given an admin client without listTopics().', 'Give it what kafka.admin() returns.')
  }
  if (typeof topic !== 'function') {
    refuse('was given `topic`, but no function.', 'Give it (topic) => `prefix.${topic}`, or leave it out.')
  }
  checkWhole('maxMessageBytes', maxMessageBytes, 1000)
  checkWhole('timeoutMs', timeoutMs, 1)
  const transactions =
    transactional && new KafkaTransactions({ make: transactional, prefix, maxMessageBytes, timeoutMs })
  const headersOf = headersBy('kafkaSink()', options.cloudEvents, BINDINGS.kafka)
  return { producer, transactions, admin, topicOf: topic, maxMessageBytes, timeoutMs, headersOf }
}

/** What a timer takes. */
const LARGEST = 2 ** 31 - 1

function checkWhole(name: string, value: number, least: number): void {
  if (Number.isSafeInteger(value) && value >= least && value <= LARGEST) return
  refuse(`was given ${name} ${String(value)}.`, `Give it a whole number from ${least} on.`)
}

function refuse(what: string, advice: string): never {
  throw new InvalidOptionError(`kafkaSink() ${what}`, { advice })
}
