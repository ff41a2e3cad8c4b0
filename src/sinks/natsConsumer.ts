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
import { type NatsMessage, readNatsMessage } from './natsMessage.ts'

/** A message of JetStream, as `@nats-io/jetstream` gives it. */
export interface NatsDelivery extends NatsMessage {
  /** Its number in the stream of JetStream. */
  readonly seq?: number
  ack(): void
  nak(delayMs?: number): void
}

/** Messages as they come. */
export interface NatsDeliveries extends AsyncIterable<NatsDelivery> {
  /** Ends them. */
  stop(error?: Error): void
}

/** A pull consumer with explicit acknowledgment: what `consumers.get()` of `@nats-io/jetstream` gives. */
export interface NatsPullConsumer {
  consume(options: { readonly max_messages: number }): Promise<NatsDeliveries>
}

/** What `natsConsumer()` takes. */
export interface NatsConsumerOptions<
  Client = unknown,
  Events extends object = EventMap,
  Consumed extends object = EventMap,
> extends BrokerConsumerOptions<Client, Events, Consumed> {
  /** The pull consumer, durable and with `ack_policy: 'explicit'`. Any number of processes can share one. */
  readonly consumer: NatsPullConsumer
}

const NATS_CONSUMER_OPTIONS: OptionNames<NatsConsumerOptions> = { ...BROKER_CONSUMER_OPTIONS, consumer: true }

/** The maximum number of messages that the client has requested. */
const MOST_ASKED = 500
/** How long JetStream keeps a message that is returned. */
const AGAIN_MS = 200

/**
 * Consumes what `natsSink()` has written: each event exactly once, in order per key, keys in parallel. Processes can share one pull
 * consumer: a message that overtakes another one waits for it.
 *
 * @example
 * const pull = await jetstream(client).consumers.get('EVENTS', 'billing')
 * const consumer = natsConsumer('billing', { lockstep, consumer: pull }, async (event, tx) => {
 *   await tx.query('INSERT INTO invoices (order_id, seq) VALUES ($1, $2)', [event.key, event.seq])
 * })
 * await consumer.run({ signal })
 */
export function natsConsumer<Client = unknown, Events extends object = EventMap, Consumed extends object = EventMap>(
  name: string,
  options: NatsConsumerOptions<Client, Events, Consumed> & { readonly lists: true },
  handler: ListHandler<ConsumedEvents<Consumed>, Client, Events>,
): BrokerConsumer
export function natsConsumer<Client = unknown, Events extends object = EventMap, Consumed extends object = EventMap>(
  name: string,
  options: NatsConsumerOptions<Client, Events, Consumed>,
  handler: EventHandler<ConsumedEvents<Consumed>, Client, Events>,
): BrokerConsumer
export function natsConsumer(
  name: string,
  options: NatsConsumerOptions,
  handler: EventHandler | ListHandler,
): BrokerConsumer {
  checkOptions('natsConsumer()', options, NATS_CONSUMER_OPTIONS)
  if (typeof options.consumer?.consume !== 'function') {
    throw new InvalidOptionError('consumer is no consumer of JetStream.', {
      advice: "Pass what jetstream(client).consumers.get('EVENTS', 'billing') gives.",
    })
  }
  return brokerConsumer('natsConsumer()', name, options, handler, () => new NatsSource(options.consumer))
}

class NatsSource implements Source {
  readonly name = 'nats'
  readonly #consumer: NatsPullConsumer

  constructor(consumer: NatsPullConsumer) {
    this.#consumer = consumer
  }

  async read(intake: Intake, signal: AbortSignal): Promise<void> {
    const messages = await this.#consumer.consume({ max_messages: Math.min(intake.maxInFlight, MOST_ASKED) })
    const forget = onAbort(signal, () => messages.stop())
    try {
      for await (const message of messages) {
        if (signal.aborted) {
          message.nak()
          continue
        }
        try {
          const event = readNatsMessage(message)
          // One that waits for longer than ack_wait comes again.
          const name = message.seq === undefined ? undefined : String(message.seq)
          const [done, again] = [() => message.ack(), () => message.nak(AGAIN_MS)]
          intake.take({ event, bytes: message.data.length, done, again, name })
        } catch (error) {
          intake.unreadable(error, () => message.ack())
        }
        await intake.room()
      }
    } finally {
      forget()
      messages.stop()
    }
  }
}
