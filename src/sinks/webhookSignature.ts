import { createHmac, timingSafeEqual } from 'node:crypto'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, WebhookUnverifiedError } from '../errors.ts'
import type { OutboxEvent } from '../outbox/index.ts'
import { HEADERS, messageHeaders, readMessage, type ReceivedEvent } from './message.ts'

/** The names of https://www.standardwebhooks.com, and two of our own. */
export const WEBHOOK = {
  id: 'webhook-id',
  timestamp: 'webhook-timestamp',
  signature: 'webhook-signature',
  idempotencyKey: 'idempotency-key',
  /** The event's own headers, as JSON in base64url: proxies change, add and drop headers on the way. */
  eventHeaders: 'lockstep-headers',
  /** The standard's signature covers id, time and body. This one covers topic, key, number, fence and the event's headers. */
  signatureOfFacts: 'lockstep-signature',
} as const

const PREFIX = 'whsec_'
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/
const [LEAST_BYTES, MOST_BYTES] = [24, 64]

/** The keys of one or several secrets. An error about one does not contain it. */
export function keysOf(secrets: string | readonly string[]): readonly Buffer[] {
  const list: readonly unknown[] = Array.isArray(secrets) ? secrets : [secrets]
  if (list.length === 0) throw noSecret('There is no secret.')
  return list.map((secret) => {
    if (typeof secret !== 'string' || !secret.startsWith(PREFIX)) throw noSecret(`A secret does not begin with whsec_.`)
    const encoded = secret.slice(PREFIX.length)
    const key = Buffer.from(encoded, 'base64')
    if (!BASE64.test(encoded) || key.length < LEAST_BYTES || key.length > MOST_BYTES)
      throw noSecret(`A secret is not base64 of ${LEAST_BYTES} to ${MOST_BYTES} bytes.`)
    return key
  })
}

function noSecret(message: string): InvalidOptionError {
  return new InvalidOptionError(message, {
    advice: 'Make one with `whsec_${randomBytes(32).toString("base64")}`, and give it to the receiver as it is.',
  })
}

/** Names that frame a request: from an event they could make two requests of one. */
const FRAMING =
  /^(?:connection|content-length|expect|host|http2-settings|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade)$/
const OURS = /^(?:lockstep-|webhook-|idempotency-key$|content-type$)/

/** Says what is wrong with a header that is to go with an event. Node would send some of what is refused here, and proxies would not. */
export function headerFault(name: string, value: string): string | undefined {
  if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)) return `HTTP has no header of the name ${JSON.stringify(name)}`
  if (FRAMING.test(name.toLowerCase())) return `the header ${name} belongs to the connection, not to an event`
  if (!/^[\t\x20-\x7e]*$/.test(value)) return `HTTP cannot carry the value of the header ${name}: it is not plain ASCII`
  return undefined
}

/** Whether a header's name is one that the sink sets by itself. */
export function isOurs(name: string): boolean {
  return OURS.test(name.toLowerCase())
}

/** The headers that say what an event is, the same at every attempt; or what is wrong with those it was enqueued with. */
export function factsOf(event: OutboxEvent): Record<string, string> | string {
  const all = messageHeaders(event)
  const own: Record<string, string> = {}
  const facts: Record<string, string> = {}
  let any = false
  for (const [name, value] of Object.entries(all)) {
    if (isOurs(name)) continue
    const fault = headerFault(name, value)
    if (fault !== undefined) return fault
    own[name] = value
    facts[name.toLowerCase()] = value
    any = true
  }
  for (const name of Object.values(HEADERS)) facts[name] = all[name] as string
  // An event's own header cannot make it a tombstone.
  if (event.tombstone === undefined) delete facts[HEADERS.tombstone]
  facts[WEBHOOK.id] = event.id
  facts[WEBHOOK.idempotencyKey] = event.id
  if (any) facts[WEBHOOK.eventHeaders] = Buffer.from(JSON.stringify(own)).toString('base64url')
  return facts
}

/** Signs an attempt: sets its time and its signatures, one for each key. */
export function sign(facts: Record<string, string>, body: Buffer, keys: readonly Buffer[], nowMs: number): void {
  const timestamp = String(Math.floor(nowMs / 1000))
  facts[WEBHOOK.timestamp] = timestamp
  const bodies = keys.map((key) => ofBody(facts[WEBHOOK.id] as string, timestamp, body, key))
  facts[WEBHOOK.signature] = bodies.map((signature) => `v1,${signature}`).join(' ')
  facts[WEBHOOK.signatureOfFacts] = keys
    .map((key, place) => `v1,${ofFacts(facts, bodies[place] as string, key)}`)
    .join(' ')
}

function ofBody(id: string, timestamp: string, body: Uint8Array, key: Buffer): string {
  return createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64')
}

/** In the order in which they are signed: receivers in other languages count on it. */
const FACTS: readonly string[] = [
  HEADERS.topic,
  HEADERS.key,
  HEADERS.seq,
  HEADERS.id,
  HEADERS.fence,
  HEADERS.history,
  HEADERS.enqueuedAt,
  HEADERS.tombstone,
  HEADERS.contentType,
  WEBHOOK.eventHeaders,
]

/** A line break stands in no header: so this text is never one that the standard's signature covers, nor the other way round. */
function ofFacts(facts: Readonly<Record<string, string | undefined>>, ofTheBody: string, key: Buffer): string {
  let text = `lockstep\n${ofTheBody}`
  for (const name of FACTS) {
    const value = facts[name]
    if (value !== undefined) text += `\n${name}: ${value}`
  }
  return createHmac('sha256', key).update(text).digest('base64')
}

/** What `verifyWebhook()` takes beside the secrets. */
export interface VerifyOptions {
  /** How much the clocks can differ, plus the time on the network. Older requests count as replayed. Default 300,000. */
  readonly toleranceMs?: number
}

const VERIFY_OPTIONS: OptionNames<VerifyOptions> = { toleranceMs: true }

/** Headers as Node's `request.headers`, or as the `Headers` of a fetch API. */
export type WebhookHeaders =
  | Readonly<Record<string, string | readonly string[] | undefined>>
  | Iterable<[name: string, value: string]>

/**
 * What a receiver does first: checks that a request comes from a sender with the secret, is fresh, and that neither its body nor what
 * it says about the event was changed. Gives the event as the inbox takes it; throws `WebhookUnverifiedError` otherwise. `body` is the
 * body as it came, byte by byte: not what was parsed of it.
 *
 * @example
 * const event = verifyWebhook<Trade>(request.headers, body, process.env['WEBHOOK_SECRET'] ?? '')
 * await consumer.handle(event, {}, async (tx, { payload }) => { … })
 */
export function verifyWebhook<Payload = unknown>(
  headers: WebhookHeaders,
  body: Uint8Array | string,
  secrets: string | readonly string[],
  options: VerifyOptions = {},
): ReceivedEvent<Payload> {
  checkOptions('verifyWebhook()', options, VERIFY_OPTIONS)
  const { toleranceMs = 300_000 } = options
  if (!(toleranceMs > 0)) {
    throw new InvalidOptionError(`toleranceMs is ${String(toleranceMs)}.`, {
      advice: 'Use the milliseconds of some minutes.',
    })
  }
  const keys = keysOf(secrets)
  const given = read(headers)
  const required = (name: string): string => {
    const value = given[name]
    if (value === undefined) throw unverified(`A webhook has no header ${name}.`)
    return value
  }
  const id = required(WEBHOOK.id)
  const timestamp = required(WEBHOOK.timestamp)
  const signatures = signaturesIn(required(WEBHOOK.signature))
  const signaturesOfFacts = signaturesIn(required(WEBHOOK.signatureOfFacts))
  const offMs = Date.now() - Number(timestamp) * 1000
  if (!/^\d{1,12}$/.test(timestamp) || Math.abs(offMs) > toleranceMs + 1000)
    throw unverified(`The webhook ${id} is not of this time: ${timestamp}.`)
  const bytes = typeof body === 'string' ? Buffer.from(body) : body
  const ours = keys.map((key) => ofBody(id, timestamp, bytes, key))
  const found = ours.findIndex((signature) => signatures.some((other) => equal(signature, other)))
  if (found < 0) throw unverified(`No signature of the webhook ${id} is right.`)
  const facts = ofFacts(given, ours[found] as string, keys[found] as Buffer)
  if (!signaturesOfFacts.some((other) => equal(facts, other)) || required(HEADERS.id) !== id)
    throw unverified(`What the webhook ${id} says about its event was changed.`)
  const own = given[WEBHOOK.eventHeaders]
  return readMessage<Payload>(
    {
      ...(own === undefined ? {} : (JSON.parse(Buffer.from(own, 'base64url').toString()) as Record<string, string>)),
      ...Object.fromEntries(Object.values(HEADERS).map((name) => [name, given[name]])),
    },
    bytes,
  )
}

function read(headers: WebhookHeaders): Record<string, string | undefined> {
  const entries =
    Symbol.iterator in headers
      ? [...(headers as Iterable<[string, string]>)]
      : Object.entries(headers as Record<string, string | readonly string[] | undefined>)
  // One that came twice says two things, and so nothing.
  return Object.fromEntries(
    entries.map(([name, value]) => [name.toLowerCase(), typeof value === 'string' ? value : undefined]),
  )
}

/** More than that is no rotation of secrets. */
const MOST_SIGNATURES = 20

function signaturesIn(header: string): readonly string[] {
  return header
    .split(' ')
    .slice(0, MOST_SIGNATURES)
    .filter((each) => each.startsWith('v1,'))
    .map((each) => each.slice('v1,'.length))
}

function equal(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)]
  return a.length === b.length && timingSafeEqual(a, b)
}

function unverified(message: string): WebhookUnverifiedError {
  return new WebhookUnverifiedError(message, {
    advice: 'Answer 401, and look at the secret, at the clocks, and at what stands between sender and receiver.',
  })
}
