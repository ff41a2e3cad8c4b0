import { checkOptions, type OptionNames } from '../checkOptions.ts'
import {
  BROKER_CONSUMER_OPTIONS,
  type BrokerConsumer,
  brokerConsumer,
  type BrokerConsumerOptions,
  type ConsumedEvent,
  type EventHandler,
  type Intake,
  type ListHandler,
  type Source,
} from '../consumers/index.ts'
import { InvalidOptionError } from '../errors.ts'
import type { EventMap } from '../events/index.ts'
import { onAbort } from '../postgres/index.ts'
import { readMessage } from './message.ts'

/** A message of a batch, as kafkajs gives it. */
export interface KafkaDelivery {
  readonly offset: string
  readonly value: Buffer | null
  readonly headers?: Readonly<Record<string, unknown>> | undefined
}

/** A batch of one partition, as kafkajs gives it to `eachBatch`. */
export interface KafkaBatchDelivery {
  readonly batch: { readonly topic: string; readonly partition: number; readonly messages: readonly KafkaDelivery[] }
  resolveOffset(offset: string): void
  heartbeat(): Promise<void>
  commitOffsetsIfNecessary(): Promise<void>
  isRunning(): boolean
  isStale(): boolean
}

/** What is used of a consumer of kafkajs, not connected yet. */
export interface KafkaGroupConsumer {
  connect(): Promise<void>
  subscribe(options: { topics: string[]; fromBeginning?: boolean }): Promise<void>
  run(options: {
    eachBatchAutoResolve: boolean
    partitionsConsumedConcurrently: number
    eachBatch: (given: KafkaBatchDelivery) => Promise<void>
  }): Promise<void>
  stop(): Promise<void>
  disconnect(): Promise<void>
}

/** What `kafkaConsumer()` takes. */
export interface KafkaConsumerOptions<Client = unknown, Events extends object = EventMap> extends BrokerConsumerOptions<
  Client,
  Events
> {
  /** Makes a consumer of kafkajs with its group: `() => kafka.consumer({ groupId: 'billing' })`. It is connected and disconnected here. */
  readonly consumer: () => KafkaGroupConsumer
  /** Topics of Kafka. */
  readonly topics: readonly string[]
  /** How many partitions are read at once. Default 8. */
  readonly partitions?: number
}

const KAFKA_CONSUMER_OPTIONS: OptionNames<KafkaConsumerOptions> = {
  ...BROKER_CONSUMER_OPTIONS,
  consumer: true,
  topics: true,
  partitions: true,
}

/** While a batch is being handled, the group hears of this process so often. */
const HEARTBEAT_MS = 1000

/**
 * Consumes what `kafkaSink()` has sent: each event exactly once, in order per key, keys in parallel, also those of one partition. An offset is
 * resolved when it and all before it were applied. A key that waits holds up its partition: use `giveUp` for events that fail too often.
 *
 * @example
 * const options = { lockstep, consumer: () => kafka.consumer({ groupId: 'billing' }), topics: ['orders'] }
 * const consumer = kafkaConsumer('billing', options, async (event, tx) => {
 *   await tx.query('INSERT INTO invoices (order_id, seq) VALUES ($1, $2)', [event.key, event.seq])
 * })
 * await consumer.run({ signal })
 */
export function kafkaConsumer<Client = unknown, Events extends object = EventMap>(
  name: string,
  options: KafkaConsumerOptions<Client, Events>,
  handler: EventHandler<ConsumedEvent, Client, Events> | ListHandler<ConsumedEvent, Client, Events>,
): BrokerConsumer {
  checkOptions('kafkaConsumer()', options, KAFKA_CONSUMER_OPTIONS)
  const plain = options as unknown as KafkaConsumerOptions
  const { consumer, topics, partitions = 8 } = plain
  if (typeof consumer !== 'function' || !Array.isArray(topics) || topics.length === 0) {
    throw new InvalidOptionError('kafkaConsumer() needs `consumer` and `topics`.', {
      advice: "Pass consumer: () => kafka.consumer({ groupId: 'billing' }), topics: ['orders'].",
    })
  }
  const open = (): Source => new KafkaSource(consumer, [...(topics as readonly string[])], partitions)
  return brokerConsumer('kafkaConsumer()', name, plain, handler as EventHandler, open)
}

class KafkaSource implements Source {
  readonly name = 'kafka'
  readonly #make: () => KafkaGroupConsumer
  readonly #topics: string[]
  readonly #partitions: number
  #open: KafkaGroupConsumer | undefined

  constructor(make: () => KafkaGroupConsumer, topics: string[], partitions: number) {
    this.#make = make
    this.#topics = topics
    this.#partitions = partitions
  }

  async read(intake: Intake, signal: AbortSignal): Promise<void> {
    await this.close()
    const consumer = this.#make()
    this.#open = consumer
    await consumer.connect()
    await consumer.subscribe({ topics: this.#topics, fromBeginning: true })
    await consumer.run({
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: this.#partitions,
      eachBatch: (given: KafkaBatchDelivery) => readBatch(given, intake, signal),
    })
    await new Promise<void>((resolve) => onAbort(signal, resolve))
    await consumer.stop()
  }

  async close(): Promise<void> {
    const open = this.#open
    this.#open = undefined
    await open?.disconnect().catch(() => undefined)
  }
}

/** Comes back when all of the batch was applied, or is another process's. */
async function readBatch(given: KafkaBatchDelivery, intake: Intake, signal: AbortSignal): Promise<void> {
  const { batch, resolveOffset, heartbeat, commitOffsetsIfNecessary, isRunning, isStale } = given
  const finished = new Set<number>()
  let [resolved, taken] = [0, 0]
  let wake = (): void => undefined
  const over = (): boolean => signal.aborted || !isRunning() || isStale()
  const finish = (place: number): void => {
    finished.add(place)
    // Kafka knows one offset for a partition: what is behind one that waits is delivered again after a crash.
    while (finished.delete(resolved)) resolveOffset((batch.messages[resolved++] as KafkaDelivery).offset)
    wake()
  }
  const forget = onAbort(signal, () => wake())
  const timer = setInterval(() => wake(), HEARTBEAT_MS)
  const pause = async (until: Promise<unknown>): Promise<void> => {
    await Promise.race([until, new Promise<void>((resolve) => (wake = resolve))])
    await heartbeat()
  }
  try {
    for (; taken < batch.messages.length && !over(); taken++) {
      const place = taken
      while (intake.free === 0 && !over()) await pause(intake.room())
      if (over()) break
      const { headers = {}, value } = batch.messages[place] as KafkaDelivery
      try {
        const event = readMessage(headers as Parameters<typeof readMessage>[0], value)
        intake.take({ event, bytes: value?.length ?? 0, done: () => finish(place) })
      } catch (error) {
        intake.unreadable(error, () => finish(place))
      }
    }
    while (resolved < taken && !over()) await pause(NEVER)
    if (!isStale()) await commitOffsetsIfNecessary()
  } finally {
    clearInterval(timer)
    forget()
  }
}

const NEVER = new Promise<never>(() => undefined)
