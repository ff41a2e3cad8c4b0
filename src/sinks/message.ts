import { InvalidOptionError } from '../errors.ts'
import type { InboxEvent } from '../inbox/index.ts'
import { EventRefusedError, type OutboxEvent } from '../outbox/index.ts'
import { attributesIn } from './cloudEventNames.ts'
import { nameOf } from './reasons.ts'

/** The names under which an event's own facts travel, at every broker. */
export const HEADERS = {
  topic: 'lockstep-topic',
  key: 'lockstep-key',
  seq: 'lockstep-seq',
  id: 'lockstep-id',
  fence: 'lockstep-fence',
  history: 'lockstep-history',
  generation: 'lockstep-generation',
  enqueuedAt: 'lockstep-enqueued-at',
  tombstone: 'lockstep-tombstone',
  contentType: 'content-type',
} as const

const OURS = /^(?:lockstep-|content-type$)/i

/**
 * What goes beside the body. Topic and key are percent-encoded: not every broker's headers take what is not ASCII. Throws `EventRefusedError`
 * where the event's own headers are not an object of text.
 */
export function messageHeaders(event: OutboxEvent): Record<string, string> {
  return {
    ...ownHeaders(event),
    [HEADERS.topic]: encodeURIComponent(event.topic),
    [HEADERS.key]: encodeURIComponent(event.key),
    [HEADERS.seq]: String(event.seq),
    [HEADERS.id]: event.id,
    [HEADERS.fence]: String(event.fence),
    [HEADERS.history]: event.history,
    [HEADERS.generation]: String(event.generation),
    [HEADERS.enqueuedAt]: event.enqueuedAt.toISOString(),
    [HEADERS.contentType]: event.contentType,
    ...(event.tombstone === undefined ? {} : { [HEADERS.tombstone]: event.tombstone }),
  }
}

/** Those that an event was enqueued with. A name of ours, were it let through, could make a tombstone of it. */
function ownHeaders(event: OutboxEvent): Readonly<Record<string, string>> {
  const { headers } = event
  if (typeof headers !== 'object' || headers === null) throw malformed(event, 'its headers are no object')
  let kept = headers
  for (const name of Object.keys(headers)) {
    if (typeof headers[name] !== 'string') throw malformed(event, `its header ${JSON.stringify(name)} is not text`)
    if (!OURS.test(name)) continue
    if (kept === headers) kept = { ...headers }
    delete (kept as Record<string, string>)[name]
  }
  return kept
}

function malformed(event: OutboxEvent, why: string): EventRefusedError {
  return new EventRefusedError(`${nameOf(event)} cannot be sent: ${why}.`)
}

/** An event as a consumer got it from a broker: the inbox takes it as it is. */
export interface ReceivedEvent<Payload = unknown> extends InboxEvent {
  /** As it was enqueued: what JSON returns, or bytes. Undefined in a tombstone. */
  readonly payload: Payload
  readonly body: Buffer
  readonly contentType: string
  /** Those that were enqueued with it: without Lockstep's own, and without the attributes of CloudEvents that a sink has added. */
  readonly headers: Readonly<Record<string, string>>
  readonly enqueuedAt: Date
  /** Grows with every owner of the event's shard, along one chain of promotions. */
  readonly fence: bigint
  /** The history in which it was sent: another one after a crash, a promotion or a restore of the producer's server. */
  readonly history: string
  /** The generation in which it was enqueued; undefined in a message of a version that did not send it. */
  readonly generation: number | undefined
  readonly tombstone: string | undefined
}

type HeaderValue = string | Uint8Array | readonly (string | Uint8Array)[] | undefined

/**
 * Reads a message that a sink of Lockstep's has sent, at whatever broker: its headers and its body.
 *
 * @example
 * await consumer.handle(readMessage<Trade>(message.headers, message.value), {}, async (tx, { payload }) => { … })
 */
export function readMessage<Payload = unknown>(
  headers: Readonly<Record<string, HeaderValue>>,
  body: Uint8Array | string | null,
): ReceivedEvent<Payload> {
  const all = new Map(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), textOf(value)]))
  const required = (name: string): string => {
    const value = all.get(name)
    if (value !== undefined) return value
    throw notOurs(`A message has no header ${name}.`)
  }
  const whole = (name: string): string => {
    const value = required(name)
    if (/^\d+$/.test(value)) return value
    throw notOurs(`A message has a header ${name} that is no number.`)
  }
  const bytes = typeof body === 'string' ? Buffer.from(body) : Buffer.from(body ?? '')
  const contentType = all.get(HEADERS.contentType) ?? 'application/json'
  const tombstone = all.get(HEADERS.tombstone)
  const event = {
    topic: decoded(HEADERS.topic, required(HEADERS.topic)),
    key: decoded(HEADERS.key, required(HEADERS.key)),
    seq: Number(whole(HEADERS.seq)),
    id: required(HEADERS.id),
    fence: BigInt(whole(HEADERS.fence)),
    history: required(HEADERS.history),
    generation: all.get(HEADERS.generation) === undefined ? undefined : Number(whole(HEADERS.generation)),
    enqueuedAt: timeOf(HEADERS.enqueuedAt, required(HEADERS.enqueuedAt)),
    tombstone,
    contentType,
  }
  const ours = new Set<string>([...Object.values(HEADERS), ...attributesIn(all, event.id)])
  return {
    ...event,
    headers: Object.fromEntries([...all].filter(([name, value]) => value !== undefined && !ours.has(name))) as Record<
      string,
      string
    >,
    body: bytes,
    get payload() {
      if (tombstone !== undefined) return undefined as Payload
      return (contentType === 'application/json' ? JSON.parse(bytes.toString()) : bytes) as Payload
    },
  }
}

function decoded(name: string, value: string): string {
  try {
    return decodeURIComponent(value)
  } catch {
    throw notOurs(`A message has a header ${name} that is not percent-encoded.`)
  }
}

function timeOf(name: string, value: string): Date {
  const time = new Date(value)
  if (Number.isNaN(time.getTime())) throw notOurs(`A message has a header ${name} that is no time.`)
  return time
}

function notOurs(message: string): InvalidOptionError {
  return new InvalidOptionError(message, {
    advice: 'Read messages that a sink of Lockstep has sent, with all their headers.',
  })
}

/** Whatever its type says: brokers, and what stands between, add headers that are null, numbers or tables. */
function textOf(value: HeaderValue): string | undefined {
  if (typeof value === 'string') return value
  if (value instanceof Uint8Array) return Buffer.from(value).toString()
  return Array.isArray(value) ? textOf(value[0] as HeaderValue) : undefined
}
