import type { Delivery, OutboxEvent } from '../outbox/index.ts'
import type { HeadersOf } from './cloudEvents.ts'
import { HEADERS, readMessage, type ReceivedEvent } from './message.ts'

const FIRST_LINE = 'NATS/1.0\r\n'
/** What the protocol can carry as a name. */
const NAME = /^[!-9;-~]+$/
const BREAK = /[\r\n]/
/** By these a message gives orders to the server: to drop the whole stream, even. */
const ORDERS = /^nats-/i

/**
 * The headers of an event as they go over the wire, but for the last one, which says behind which message it goes. Or why it cannot be
 * sent.
 */
export function headerLines(
  event: OutboxEvent,
  stream: string,
  headersOf: HeadersOf,
): string | Exclude<Delivery, 'sent'> {
  const headers = headersOf(event)
  let lines = `${FIRST_LINE}Nats-Msg-Id: ${event.id}\r\nNats-Expected-Stream: ${stream}\r\n`
  for (const name in headers) {
    const value = headers[name] as string
    if (!NAME.test(name) || BREAK.test(value)) return refuse(event, name, 'NATS cannot carry its name or its value')
    if (ORDERS.test(name)) return refuse(event, name, "it is an order to NATS, and no event's")
    lines += `${name}: ${value}\r\n`
  }
  return lines
}

function refuse({ topic, key, seq }: OutboxEvent, name: string, why: string): Exclude<Delivery, 'sent'> {
  const advice = 'Use names of printable ASCII without a colon, and values of one line.'
  return { refused: `#${seq} of ${topic}/${key} has a header ${JSON.stringify(name)}: ${why}. ${advice}` }
}

/** The client asks headers for nothing else. */
export class WireHeaders {
  readonly #bytes: Buffer

  constructor(lines: string, behind: number) {
    this.#bytes = Buffer.from(`${lines}Nats-Expected-Last-Subject-Sequence: ${behind}\r\n\r\n`)
  }

  get length(): number {
    return this.#bytes.length
  }

  encode(): Uint8Array {
    return this.#bytes
  }
}

/** A message as the stream has it. */
export interface Stored {
  /** Its place in the JetStream stream. */
  readonly at: number
  /** The event's own number and id. Undefined where no Lockstep has written it. */
  readonly seq: number | undefined
  readonly id: string | undefined
  readonly generation: number | undefined
}

/** Reads what the server says about one message. */
export function storedOf(message: { readonly seq: number; readonly hdrs?: string }): Stored {
  const lines = Buffer.from(message.hdrs ?? '', 'base64')
    .toString()
    .split('\r\n')
  const valueOf = (name: string): string | undefined =>
    lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2)
  const seq = Number(valueOf(HEADERS.seq))
  const generation = valueOf(HEADERS.generation)
  return {
    at: message.seq,
    seq: Number.isSafeInteger(seq) && seq > 0 ? seq : undefined,
    id: valueOf(HEADERS.id),
    generation: generation === undefined ? undefined : Number(generation),
  }
}

/** What a message has to have to be read: as those of `@nats-io` have it. */
export interface NatsMessage {
  readonly headers?: Iterable<readonly [name: string, values: readonly string[]]> | undefined
  readonly data: Uint8Array
}

/**
 * Reads a message of JetStream's that the sink has sent: the inbox takes it as it is.
 *
 * @example
 * for await (const message of await consumer.consume()) {
 *   await consumer.handle(readNatsMessage<Trade>(message), {}, apply)
 *   message.ack()
 * }
 */
export function readNatsMessage<Payload = unknown>(message: NatsMessage): ReceivedEvent<Payload> {
  const all = [...(message.headers ?? [])].filter(([name]) => !ORDERS.test(name))
  return readMessage<Payload>(Object.fromEntries(all), message.data)
}
