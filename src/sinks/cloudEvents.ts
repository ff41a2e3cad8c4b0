import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import { EventRefusedError, type OutboxEvent } from '../outbox/index.ts'
import type { ATTRIBUTES } from './cloudEventNames.ts'
import { messageHeaders } from './message.ts'
import { nameOf, textOf } from './reasons.ts'

/** How the attributes of CloudEvents 1.0 are made of an event. Topic and key are the defaults. */
export interface CloudEventsOptions {
  /** The producer, a URI reference such as `/orders`. Source and id together are unique. */
  readonly source: string | ((event: OutboxEvent) => string)
  /** The type of the event. A tombstone has the type `lockstep.tombstone` instead. Default: the topic. */
  readonly type?: string | ((event: OutboxEvent) => string)
  /** The subject of the event. Default: the key. */
  readonly subject?: (event: OutboxEvent) => string
  /** The URI of the schema of its payload. Undefined: the event has none. Default: none. */
  readonly dataschema?: (event: OutboxEvent) => string | undefined
}

const CLOUD_EVENTS_OPTIONS: OptionNames<CloudEventsOptions> = {
  source: true,
  type: true,
  subject: true,
  dataschema: true,
}

/** How a transport carries the attributes. */
export interface CloudEventsBinding {
  readonly prefix: string
  /** Whether values are percent-encoded, as the bindings of HTTP and NATS say. */
  readonly encoded: boolean
  /** Whether the content type is an attribute like the others; otherwise the message says it by itself. */
  readonly contentType: boolean
}

/** As the protocol bindings of CloudEvents say. Redis has none: fields are named as Kafka's headers. */
export const BINDINGS = {
  http: { prefix: 'ce-', encoded: true, contentType: false },
  nats: { prefix: 'ce-', encoded: true, contentType: true },
  kafka: { prefix: 'ce_', encoded: false, contentType: false },
  amqp: { prefix: 'cloudEvents_', encoded: false, contentType: false },
  redis: { prefix: 'ce_', encoded: false, contentType: false },
} as const satisfies Record<string, CloudEventsBinding>

/** What a message says of an event: Lockstep's headers, and the attributes of CloudEvents where they are wanted. */
export type HeadersOf = (event: OutboxEvent) => Record<string, string>

const TOMBSTONE_TYPE = 'lockstep.tombstone'
/** What a URI reference can have. */
const URI_REFERENCE = /^(?:[\w\-.~:/?#[\]@!$&'()*+,;=]|%[\dA-Fa-f]{2})+$/
/** What the type system of CloudEvents keeps out of text. */
// oxlint-disable-next-line no-control-regex -- these are what is refused
const NO_TEXT = /[\x00-\x1f\x7f-\x9f]/

/** The headers of messages by this binding. `given` are the options of the sink. */
export function headersBy(sink: string, given: CloudEventsOptions | undefined, binding: CloudEventsBinding): HeadersOf {
  const attributesOf = attributesBy(sink, given, binding)
  if (attributesOf === undefined) return messageHeaders
  return (event) => {
    const attributes = attributesOf(event)
    const headers = messageHeaders(event)
    const taken = new Set(Object.keys(attributes).map((name) => name.toLowerCase()))
    for (const name of Object.keys(headers)) if (taken.has(name.toLowerCase())) delete headers[name]
    return Object.assign(headers, attributes)
  }
}

/** The attributes alone, by their names on the way. Undefined where none are wanted. */
export function attributesBy(
  sink: string,
  given: CloudEventsOptions | undefined,
  { prefix, encoded, contentType }: CloudEventsBinding,
): HeadersOf | undefined {
  if (given === undefined) return undefined
  checkOptions(`\`cloudEvents\` of ${sink}`, given, CLOUD_EVENTS_OPTIONS)
  const { source, type = ({ topic }: OutboxEvent) => topic, subject = ({ key }: OutboxEvent) => key } = given
  const { dataschema = () => undefined } = given
  const [sourceOf, typeOf] = [functionOf(source), functionOf(type)]
  for (const [name, each] of Object.entries({ source: sourceOf, type: typeOf, subject, dataschema })) {
    if (typeof each !== 'function') throw unfit(name, each)
  }
  if (typeof source === 'string' && !URI_REFERENCE.test(source)) throw unfit('source', source)
  if (typeof type === 'string' && (type === '' || NO_TEXT.test(type))) throw unfit('type', type)
  return (event) => {
    const attributes: Partial<Record<(typeof ATTRIBUTES)[number], string | undefined>> = {
      specversion: '1.0',
      id: event.id,
      source: checked(event, 'source', sourceOf, URI_REFERENCE),
      type: event.tombstone === undefined ? checked(event, 'type', typeOf) : TOMBSTONE_TYPE,
      subject: checked(event, 'subject', subject),
      time: event.enqueuedAt.toISOString(),
      dataschema: checked(event, 'dataschema', dataschema, URI_REFERENCE),
      partitionkey: checked(event, 'partitionkey', ({ key }) => key),
      ...(contentType ? { datacontenttype: event.contentType } : {}),
    }
    const headers: Record<string, string> = {}
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined) headers[prefix + name] = encoded ? percentEncoded(value) : value
    }
    return headers
  }
}

function functionOf<T>(given: string | ((event: OutboxEvent) => T)): (event: OutboxEvent) => string | T {
  return typeof given === 'string' ? () => given : given
}

function unfit(name: string, given: unknown): InvalidOptionError {
  return new InvalidOptionError(`cloudEvents.${name} is ${JSON.stringify(given) ?? String(given)}.`, {
    advice: "Pass cloudEvents: { source: '/orders', type: ({ topic }) => `com.example.${topic}` }.",
  })
}

/** What no message can be made of is a matter of this event alone. */
function checked(
  event: OutboxEvent,
  name: string,
  valueOf: (event: OutboxEvent) => string | undefined,
  wanted?: RegExp,
): string | undefined {
  let value: unknown
  try {
    value = valueOf(event)
  } catch (cause) {
    throw new EventRefusedError(`cloudEvents.${name} threw for ${nameOf(event)}: ${textOf(cause)}`, { cause })
  }
  if (value === undefined && name === 'dataschema') return undefined
  const fits = typeof value === 'string' && value !== '' && !NO_TEXT.test(value) && value.isWellFormed()
  if (fits && (wanted === undefined || wanted.test(value as string))) return value as string
  throw new EventRefusedError(
    `${nameOf(event)} has no ${name} for CloudEvents: ${JSON.stringify(value) ?? String(value)} does not fit.`,
  )
}

/** Everything but printable ASCII, and of that space, quote and percent. */
function percentEncoded(value: string): string {
  return value.replace(/[^\x21\x23\x24\x26-\x7e]+/g, (text) =>
    Buffer.from(text).reduce((all, byte) => `${all}%${byte.toString(16).toUpperCase().padStart(2, '0')}`, ''),
  )
}
