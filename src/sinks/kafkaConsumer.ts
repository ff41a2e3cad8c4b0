import { setTimeout as sleep } from 'node:timers/promises'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import {
  BROKER_CONSUMER_OPTIONS,
  type BrokerConsumer,
  brokerConsumer,
  type BrokerConsumerOptions,
  type ConsumedEvents,
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
  isRunning(): boolean
  isStale(): boolean
}

/** What is used of a consumer of kafkajs, not connected yet. */
export interface KafkaGroupConsumer {
  connect(): Promise<void>
  subscribe(options: { topics: string[]; fromBeginning?: boolean }): Promise<void>
  run(options: {
    autoCommit: boolean
    eachBatchAutoResolve: boolean
    partitionsConsumedConcurrently: number
    eachBatch: (given: KafkaBatchDelivery) => Promise<void>
  }): Promise<void>
  commitOffsets(offsets: { topic: string; partition: number; offset: string }[]): Promise<void>
  disconnect(): Promise<void>
  /** Of kafkajs: it reports an end after which it does not begin again, and which partitions it was assigned. */
  on?(event: 'consumer.crash' | 'consumer.group_join', listener: (event: { readonly payload: object }) => void): unknown
}

/** Of a crash, and of joining a group. */
interface GroupNews {
  readonly error?: Error
  readonly restart?: boolean
  readonly memberAssignment?: Readonly<Record<string, readonly number[]>>
}

/** What `kafkaConsumer()` takes. */
export interface KafkaConsumerOptions<
  Client = unknown,
  Events extends object = EventMap,
  Consumed extends object = EventMap,
> extends BrokerConsumerOptions<Client, Events, Consumed> {
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

/** How often this process sends heartbeats to the group while there is no room for a batch. */
const HEARTBEAT_MS = 1000
/** How often offsets are committed. */
const COMMIT_MS = 500

/**
 * Consumes what `kafkaSink()` has sent: each event exactly once, in order per key, keys in parallel, also those of one partition. An offset is
 * committed when all messages before it were applied. A key that waits does not delay the others of its partition, until `maxInFlight`
 * messages are in memory: use `giveUp` for events that fail too often.
 *
 * @example
 * const options = { lockstep, consumer: () => kafka.consumer({ groupId: 'billing' }), topics: ['orders'] }
 * const consumer = kafkaConsumer('billing', options, async (event, tx) => {
 *   await tx.query('INSERT INTO invoices (order_id, seq) VALUES ($1, $2)', [event.key, event.seq])
 * })
 * await consumer.run({ signal })
 */
export function kafkaConsumer<Client = unknown, Events extends object = EventMap, Consumed extends object = EventMap>(
  name: string,
  options: KafkaConsumerOptions<Client, Events, Consumed> & { readonly lists: true },
  handler: ListHandler<ConsumedEvents<Consumed>, Client, Events>,
): BrokerConsumer
export function kafkaConsumer<Client = unknown, Events extends object = EventMap, Consumed extends object = EventMap>(
  name: string,
  options: KafkaConsumerOptions<Client, Events, Consumed>,
  handler: EventHandler<ConsumedEvents<Consumed>, Client, Events>,
): BrokerConsumer
export function kafkaConsumer(
  name: string,
  options: KafkaConsumerOptions,
  handler: EventHandler | ListHandler,
): BrokerConsumer {
  checkOptions('kafkaConsumer()', options, KAFKA_CONSUMER_OPTIONS)
  const { consumer, topics, partitions = 8 } = options
  if (typeof consumer !== 'function' || !Array.isArray(topics) || topics.length === 0) {
    throw new InvalidOptionError('kafkaConsumer() needs `consumer` and `topics`.', {
      advice: "Pass consumer: () => kafka.consumer({ groupId: 'billing' }), topics: ['orders'].",
    })
  }
  const open = (): Source => new KafkaSource(consumer, [...(topics as readonly string[])], partitions)
  return brokerConsumer('kafkaConsumer()', name, options, handler, open)
}

/** The offsets of one partition since it was assigned. */
class PartitionOffsets {
  readonly topic: string
  readonly partition: number
  readonly #pending = new Set<bigint>()
  #next: bigint
  #committed: bigint | undefined

  constructor(topic: string, partition: number, first: bigint) {
    this.topic = topic
    this.partition = partition
    this.#next = first
  }

  /** False: it was taken before, so the partition was assigned again. */
  continuesAt(offset: bigint): boolean {
    return offset >= this.#next
  }

  take(offset: bigint): void {
    this.#pending.add(offset)
    this.#next = offset + 1n
  }

  finish(offset: bigint): void {
    this.#pending.delete(offset)
  }

  /** What can be committed: all before it was applied. Offsets are added in order, and so is the first the smallest. */
  get toCommit(): Commit | undefined {
    const [lowest = this.#next] = this.#pending
    if (lowest === this.#committed) return undefined
    const { topic, partition } = this
    return { of: this, topic, partition, offset: lowest }
  }

  committed(offset: bigint): void {
    this.#committed = offset
  }
}

interface Commit {
  readonly of: PartitionOffsets
  readonly topic: string
  readonly partition: number
  readonly offset: bigint
}

class KafkaSource implements Source {
  readonly name = 'kafka'
  readonly #make: () => KafkaGroupConsumer
  readonly #topics: string[]
  readonly #partitions: number
  #offsets = new Map<string, PartitionOffsets>()
  #open: KafkaGroupConsumer | undefined
  /** Batches that come after the end wait for it: returning at once would only fetch them again. */
  #ended: Promise<void> = Promise.resolve()
  #end = (): void => undefined

  constructor(make: () => KafkaGroupConsumer, topics: string[], partitions: number) {
    this.#make = make
    this.#topics = topics
    this.#partitions = partitions
  }

  async read(intake: Intake, signal: AbortSignal): Promise<void> {
    await this.close()
    const consumer = this.#make()
    this.#open = consumer
    for (const offsets of this.#offsets.values()) intake.forget(offsets)
    this.#offsets = new Map()
    this.#ended = new Promise((resolve) => (this.#end = resolve))
    const crashed = new Promise<never>((_, reject) => {
      consumer.on?.('consumer.crash', ({ payload }) => {
        const { error, restart } = payload as GroupNews
        if (restart !== true) reject(error ?? new Error('The consumer of Kafka has ended.'))
      })
    })
    crashed.catch(() => undefined)
    consumer.on?.('consumer.group_join', ({ payload }) => this.#forgetOthers(payload, intake))
    await consumer.connect()
    if (!signal.aborted) await consumer.subscribe({ topics: this.#topics, fromBeginning: true })
    // Where Kafka has answered after stop() had left it alone, the group must not be joined any more.
    if (signal.aborted) return consumer.disconnect()
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: this.#partitions,
      eachBatch: (given) => this.#readBatch(given, intake, signal),
    })
    // It was closed while it joined.
    if (this.#open !== consumer) return consumer.disconnect()
    const timer = setInterval(() => void this.#commit().catch(() => undefined), COMMIT_MS)
    let forget = (): void => undefined
    try {
      const stopped = new Promise<void>((resolve) => (forget = onAbort(signal, resolve)))
      await Promise.race([stopped, crashed])
    } finally {
      clearInterval(timer)
      forget()
    }
  }

  async close(): Promise<void> {
    const open = this.#open
    if (open === undefined) return
    // Another process may have the partition by now: then the inbox finds duplicates there.
    await this.#commit().catch(() => undefined)
    this.#open = undefined
    this.#end()
    await open.disconnect().catch(() => undefined)
  }

  async #commit(): Promise<void> {
    const commits = [...this.#offsets.values()].flatMap(({ toCommit }) => toCommit ?? [])
    if (commits.length === 0) return
    await this.#open?.commitOffsets(
      commits.map(({ topic, partition, offset }) => ({ topic, partition, offset: String(offset) })),
    )
    // What fails, as it does while partitions are assigned, is committed the next time.
    for (const { of, offset } of commits) of.committed(offset)
  }

  /** What was taken of partitions that are another process's now: that one gets it as well. */
  #forgetOthers({ memberAssignment = {} }: GroupNews, intake: Intake): void {
    for (const [name, offsets] of this.#offsets) {
      if (memberAssignment[offsets.topic]?.includes(offsets.partition) === true) continue
      this.#offsets.delete(name)
      intake.forget(offsets)
    }
  }

  /** Takes a batch, as room allows. What was taken is not fetched again; it is committed when it was applied. */
  async #readBatch(given: KafkaBatchDelivery, intake: Intake, signal: AbortSignal): Promise<void> {
    const { topic, partition, messages } = given.batch
    const [first] = messages
    if (first === undefined) return given.heartbeat()
    const offsets = this.#offsetsFrom(topic, partition, BigInt(first.offset), intake)
    for (const { offset: text, headers = {}, value } of messages) {
      while (intake.free === 0 && !signal.aborted && given.isRunning() && !given.isStale()) {
        await Promise.race([intake.room(), sleep(HEARTBEAT_MS, undefined, { signal }).catch(() => undefined)])
        await given.heartbeat()
      }
      if (signal.aborted) return this.#ended
      // Assigned to another process meanwhile, or again to this one: what was taken of the batch is forgotten, and the rest must not be
      // committed without it.
      if (!given.isRunning() || given.isStale() || !this.#has(offsets)) return undefined
      const offset = BigInt(text)
      offsets.take(offset)
      const done = (): void => offsets.finish(offset)
      try {
        const event = readMessage(headers as Parameters<typeof readMessage>[0], value)
        intake.take({ event, bytes: value?.length ?? 0, done, session: offsets })
      } catch (error) {
        intake.unreadable(error, done)
      }
      given.resolveOffset(text)
    }
    return given.heartbeat()
  }

  #has(offsets: PartitionOffsets): boolean {
    return this.#offsets.get(nameOfPartition(offsets)) === offsets
  }

  #offsetsFrom(topic: string, partition: number, offset: bigint, intake: Intake): PartitionOffsets {
    const name = nameOfPartition({ topic, partition })
    const known = this.#offsets.get(name)
    if (known?.continuesAt(offset) === true) return known
    // It was assigned again, and comes from the offset that was committed last.
    if (known !== undefined) intake.forget(known)
    const fresh = new PartitionOffsets(topic, partition, offset)
    this.#offsets.set(name, fresh)
    return fresh
  }
}

function nameOfPartition({ topic, partition }: Pick<PartitionOffsets, 'topic' | 'partition'>): string {
  return `${topic}\0${partition}`
}
