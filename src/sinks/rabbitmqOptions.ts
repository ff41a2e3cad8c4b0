import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { OutboxEvent } from '../outbox/index.ts'
import { BINDINGS, type CloudEventsOptions, headersBy, type HeadersOf } from './cloudEvents.ts'

/** What the sink uses of a confirm channel: amqplib's has it. */
export interface RabbitChannel {
  publish(
    exchange: string,
    routingKey: string,
    content: Buffer,
    options: RabbitMessageOptions,
    confirmed: (error: unknown) => void,
  ): boolean
  checkExchange(exchange: string): Promise<unknown>
  close(): Promise<void>
  on(event: string, listener: (...args: unknown[]) => void): unknown
}

/** What goes with a message. */
export interface RabbitMessageOptions {
  readonly persistent: boolean
  readonly mandatory: boolean
  readonly messageId: string
  readonly contentType: string
  readonly headers: Record<string, string>
}

/** What the sink uses of a connection: what amqplib's `connect()` gives has it. */
export interface RabbitConnection {
  createConfirmChannel(): Promise<RabbitChannel>
  close(): Promise<void>
  on(event: string, listener: (...args: unknown[]) => void): unknown
}

/** What `rabbitmqSink()` takes. */
export interface RabbitmqOptions {
  /**
   * Opens a connection: `() => amqp.connect(url)`. Called when the first event is sent, and again after the connection is lost. The sink
   * owns the connection and closes it: publishers and consumers should not share one.
   */
  readonly connect: () => Promise<RabbitConnection>
  /** The exchange, which must exist. `''` is the default exchange, whose routing key is the name of a queue. */
  readonly exchange: string
  /** A text in which `{topic}` and `{key}` are filled in, or a function. At most 255 bytes. Default `{topic}`. */
  readonly routingKey?: string | ((event: OutboxEvent) => string)
  /** How long a confirmation can take, or opening a connection. Default 10,000. */
  readonly timeoutMs?: number
  /** Larger bodies are refused. At most the server’s `max_message_size`. Default 16 MiB, the default of RabbitMQ 4. */
  readonly maxEventBytes?: number
  /** Adds the attributes of CloudEvents 1.0 as headers, `cloudEvents_id` and so on. Default: none. */
  readonly cloudEvents?: CloudEventsOptions
}

const RABBITMQ_OPTIONS: OptionNames<RabbitmqOptions> = {
  connect: true,
  exchange: true,
  routingKey: true,
  timeoutMs: true,
  maxEventBytes: true,
  cloudEvents: true,
}

/** The checked options. */
export interface RabbitmqPlan {
  readonly connect: () => Promise<RabbitConnection>
  readonly exchange: string
  readonly routingKeyOf: (event: OutboxEvent) => string
  readonly timeoutMs: number
  readonly maxEventBytes: number
  readonly headersOf: HeadersOf
}

const DAY_MS = 24 * 60 * 60 * 1000

export function planRabbitmq(options: RabbitmqOptions): RabbitmqPlan {
  checkOptions('rabbitmqSink()', options, RABBITMQ_OPTIONS)
  if (typeof options.connect !== 'function') {
    throw new InvalidOptionError('rabbitmqSink() was given no `connect`.', {
      advice: "Call rabbitmqSink({ connect: () => amqp.connect(url), exchange: 'events' }).",
    })
  }
  const { connect, exchange, routingKey = '{topic}' } = options
  if (typeof exchange !== 'string' || Buffer.byteLength(exchange) > 255) {
    throw new InvalidOptionError(`exchange is ${JSON.stringify(exchange) ?? 'undefined'}.`, {
      advice: "Name an exchange, in up to 255 bytes; '' is the default one.",
    })
  }
  return {
    connect,
    exchange,
    routingKeyOf: routingKeys(routingKey),
    headersOf: headersBy('rabbitmqSink()', options.cloudEvents, BINDINGS.amqp),
    timeoutMs: checkNumber('timeoutMs', options.timeoutMs ?? 10_000, 1, DAY_MS),
    maxEventBytes: checkNumber('maxEventBytes', options.maxEventBytes ?? 16 * 1024 * 1024, 1, 512 * 1024 * 1024),
  }
}

function routingKeys(given: unknown): (event: OutboxEvent) => string {
  if (typeof given === 'function') return given as (event: OutboxEvent) => string
  const parts = typeof given === 'string' ? given.split(/(\{topic\}|\{key\})/) : []
  if (parts.length === 0 || parts.some((part, place) => place % 2 === 0 && /[{}]/.test(part))) {
    throw new InvalidOptionError(`routingKey is ${JSON.stringify(given) ?? String(given)}.`, {
      advice: "Use a text such as '{topic}.{key}', or a function of the event.",
    })
  }
  if (given === '{topic}') return ({ topic }) => topic
  return ({ topic, key }) => parts.map((part) => (part === '{topic}' ? topic : part === '{key}' ? key : part)).join('')
}

function checkNumber(name: string, value: unknown, least: number, most: number): number {
  if (Number.isInteger(value) && (value as number) >= least && (value as number) <= most) return value as number
  throw new InvalidOptionError(`${name} is ${String(value)}.`, {
    advice: `Use a whole number from ${least} to ${most}.`,
  })
}
