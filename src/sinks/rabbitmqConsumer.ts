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

/** A message, as amqplib gives it. */
export interface RabbitDelivery {
  readonly content: Buffer
  readonly properties: { readonly headers?: Readonly<Record<string, unknown>> | undefined }
}

/** What the consumer uses of a channel: amqplib's has it. */
export interface RabbitConsumeChannel {
  prefetch(count: number): Promise<unknown>
  consume(queue: string, onMessage: (message: RabbitDelivery | null) => void): Promise<{ readonly consumerTag: string }>
  cancel(consumerTag: string): Promise<unknown>
  ack(message: never): void
  nack(message: never, allUpTo: boolean, requeue: boolean): void
  close(): Promise<void>
  on(event: string, listener: (...args: unknown[]) => void): unknown
}

/** What the consumer uses of a connection: what amqplib's `connect()` gives has it. */
export interface RabbitConsumeConnection {
  createChannel(): Promise<RabbitConsumeChannel>
  close(): Promise<void>
  on(event: string, listener: (...args: unknown[]) => void): unknown
}

/** What `rabbitmqConsumer()` takes. */
export interface RabbitmqConsumerOptions<
  Client = unknown,
  Events extends object = EventMap,
  Consumed extends object = EventMap,
> extends BrokerConsumerOptions<Client, Events, Consumed> {
  /** Opens a connection: `() => amqp.connect(url)`. Called again whenever it is lost. The consumer closes it. */
  readonly connect: () => Promise<RabbitConsumeConnection>
  /** It must exist, with its bindings. With `x-single-active-consumer` one process at a time gets its messages. */
  readonly queue: string
}

const RABBITMQ_CONSUMER_OPTIONS: OptionNames<RabbitmqConsumerOptions> = {
  ...BROKER_CONSUMER_OPTIONS,
  connect: true,
  queue: true,
}

/** The largest prefetch of AMQP. */
const MOST_PREFETCH = 65_535

/**
 * Consumes what `rabbitmqSink()` has published: each event exactly once, in order per key, keys in parallel. RabbitMQ delivers at most
 * `maxInFlight` messages that are not acknowledged. A message that overtakes another one waits for it.
 *
 * @example
 * const options = { lockstep, connect: () => amqp.connect(url), queue: 'billing' }
 * const consumer = rabbitmqConsumer('billing', options, async (event, tx) => {
 *   await tx.query('INSERT INTO invoices (order_id, seq) VALUES ($1, $2)', [event.key, event.seq])
 * })
 * await consumer.run({ signal })
 */
export function rabbitmqConsumer<
  Client = unknown,
  Events extends object = EventMap,
  Consumed extends object = EventMap,
>(
  name: string,
  options: RabbitmqConsumerOptions<Client, Events, Consumed> & { readonly lists: true },
  handler: ListHandler<ConsumedEvents<Consumed>, Client, Events>,
): BrokerConsumer
export function rabbitmqConsumer<
  Client = unknown,
  Events extends object = EventMap,
  Consumed extends object = EventMap,
>(
  name: string,
  options: RabbitmqConsumerOptions<Client, Events, Consumed>,
  handler: EventHandler<ConsumedEvents<Consumed>, Client, Events>,
): BrokerConsumer
export function rabbitmqConsumer(
  name: string,
  options: RabbitmqConsumerOptions,
  handler: EventHandler | ListHandler,
): BrokerConsumer {
  checkOptions('rabbitmqConsumer()', options, RABBITMQ_CONSUMER_OPTIONS)
  const { connect, queue } = options
  if (typeof connect !== 'function' || typeof queue !== 'string' || queue === '') {
    throw new InvalidOptionError('rabbitmqConsumer() needs `connect` and `queue`.', {
      advice: "Pass connect: () => amqp.connect(url), queue: 'billing'.",
    })
  }
  return brokerConsumer('rabbitmqConsumer()', name, options, handler, () => new RabbitSource(connect, queue))
}

class RabbitSource implements Source {
  readonly name = 'rabbitmq'
  readonly #connect: () => Promise<RabbitConsumeConnection>
  readonly #queue: string
  #open: RabbitConsumeConnection | undefined

  constructor(connect: () => Promise<RabbitConsumeConnection>, queue: string) {
    this.#connect = connect
    this.#queue = queue
  }

  async read(intake: Intake, signal: AbortSignal): Promise<void> {
    await this.close()
    const connection = await this.#connect()
    // It came after stop() had left it alone.
    if (signal.aborted) return connection.close()
    this.#open = connection
    let lose = (_error: unknown): void => undefined
    const lost = new Promise<never>((_, reject) => (lose = reject))
    lost.catch(() => undefined)
    const gone = (error?: unknown): void =>
      lose(error instanceof Error ? error : new Error('The connection was closed.'))
    connection.on('error', gone)
    connection.on('close', gone)
    const channel = await Promise.race([connection.createChannel(), lost])
    try {
      await this.#readFrom(channel, lost, gone, intake, signal)
    } catch (error) {
      // What it has delivered, and was not acknowledged, goes back into the queue.
      intake.forget(channel)
      throw error
    }
  }

  async #readFrom(
    channel: RabbitConsumeChannel,
    lost: Promise<never>,
    gone: (error?: unknown) => void,
    intake: Intake,
    signal: AbortSignal,
  ): Promise<void> {
    channel.on('error', gone)
    channel.on('close', gone)
    await channel.prefetch(Math.min(intake.maxInFlight, MOST_PREFETCH))
    const take = (message: RabbitDelivery): void => {
      const again = (): void => channel.nack(message as never, false, true)
      if (signal.aborted) return again()
      const done = (): void => channel.ack(message as never)
      const { content, properties } = message
      try {
        const event = readMessage((properties.headers ?? {}) as Parameters<typeof readMessage>[0], content)
        intake.take({ event, bytes: content.length, done, again, session: channel })
      } catch (error) {
        intake.unreadable(error, done)
      }
    }
    const onMessage = (message: RabbitDelivery | null): void =>
      message === null ? gone(new Error(`The consumer of ${this.#queue} was cancelled by the server.`)) : take(message)
    const { consumerTag } = await Promise.race([channel.consume(this.#queue, onMessage), lost])
    let forget = (): void => undefined
    const stopped = new Promise<void>((resolve) => (forget = onAbort(signal, resolve)))
    try {
      await Promise.race([stopped, lost])
      // The channel stays open: what is being handled is acknowledged on it.
      await Promise.race([channel.cancel(consumerTag), lost])
    } finally {
      forget()
    }
  }

  async close(): Promise<void> {
    const open = this.#open
    this.#open = undefined
    await open?.close().catch(() => undefined)
  }
}
