import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { OutboxEvent } from '../outbox/index.ts'
import { attributesBy, BINDINGS, type CloudEventsOptions, type HeadersOf } from './cloudEvents.ts'
import { withTimeout } from './withTimeout.ts'
import type { WebhookTls } from './webhookRequest.ts'
import { headerFault, isOurs, keysOf } from './webhookSignature.ts'

/** Where an event goes. */
export interface WebhookReceiver {
  readonly url: string | URL
  /** Default: the sink's. Two receivers should not share one: each could pass for you with the other. */
  readonly secret?: string | readonly string[]
}

const RECEIVER_OPTIONS: OptionNames<WebhookReceiver> = { url: true, secret: 'never undefined' }

/** What `webhookSink()` takes. */
export interface WebhookOptions {
  /**
   * Where events go, or a function that says it for each event. A URL that is given as text can lead to a private address, because it is yours.
   * A URL that a function returns may be a customer's: it cannot, unless `allowPrivateAddresses` is set.
   */
  readonly url:
    | string
    | URL
    | ((event: OutboxEvent) => string | URL | WebhookReceiver | Promise<string | URL | WebhookReceiver>)
  /** `whsec_` and base64 of 24 to 64 random bytes. Several while secrets are changed: every request has a signature of each. */
  readonly secret?: string | readonly string[]
  /** Headers of every request, such as Authorization. */
  readonly headers?: Readonly<Record<string, string>>
  /** How many requests can be in progress at a host. Default 8. */
  readonly concurrency?: number
  /** How long an answer can take, from resolving the name to the status, redirects included. Default 10,000. */
  readonly timeoutMs?: number
  /** Larger bodies are refused. Default 1,000,000. */
  readonly maxEventBytes?: number
  /** Whether URLs from a function can lead to loopback, private, link-local and reserved addresses. Default false. */
  readonly allowPrivateAddresses?: boolean
  /**
   * Other origins to which a 307 or 308 can lead, such as `https://eu.example.com`. They receive the body, the signature and `headers`. By
   * default redirects are followed only within the same origin.
   */
  readonly redirectOrigins?: readonly string[]
  /** For receivers whose certificate a private authority signed, or that require a client certificate. */
  readonly tls?: WebhookTls
  /**
   * Adds the attributes of CloudEvents 1.0 as headers, `ce-id` and so on. They are not signed: `verifyWebhook()` does not read them.
   * Default: none.
   */
  readonly cloudEvents?: CloudEventsOptions
}

const WEBHOOK_OPTIONS: OptionNames<WebhookOptions> = {
  url: true,
  secret: true,
  headers: true,
  concurrency: true,
  timeoutMs: true,
  maxEventBytes: true,
  allowPrivateAddresses: true,
  redirectOrigins: true,
  tls: true,
  cloudEvents: true,
}

const TLS_OPTIONS: OptionNames<WebhookTls> = { ca: true, cert: true, key: true, passphrase: true, pfx: true }

/** A receiver, checked. */
export interface Receiver {
  readonly url: URL
  readonly keys: readonly Buffer[]
  readonly headers: Readonly<Record<string, string>>
  readonly publicOnly: boolean
}

/** The checked options. */
export interface WebhookPlan {
  /** The only receiver, where the URL does not depend on the event. */
  readonly fixed: Receiver | undefined
  readonly receiverOf: (event: OutboxEvent) => Promise<Receiver>
  readonly concurrency: number
  readonly timeoutMs: number
  readonly maxEventBytes: number
  readonly redirectOrigins: ReadonlySet<string>
  readonly tls: WebhookTls
  readonly attributesOf: HeadersOf | undefined
}

const DAY_MS = 24 * 60 * 60 * 1000

export function planWebhook(options: WebhookOptions): WebhookPlan {
  checkOptions('webhookSink()', options, WEBHOOK_OPTIONS)
  if (options.tls !== undefined) checkOptions('`tls` of webhookSink()', options.tls, TLS_OPTIONS)
  if (options.url === undefined) {
    throw new InvalidOptionError('webhookSink() was given no url.', {
      advice: "Call webhookSink({ url: 'https://…', secret: 'whsec_…' }).",
    })
  }
  const { url, allowPrivateAddresses = false } = options
  const keys = options.secret === undefined ? undefined : keysOf(options.secret)
  const headers = { 'user-agent': 'pg-lockstep', ...checkHeaders(options.headers ?? {}) }
  const timeoutMs = checkNumber('timeoutMs', options.timeoutMs ?? 10_000, 1, DAY_MS)
  const receiver = (given: string | URL | WebhookReceiver, publicOnly: boolean): Receiver => {
    const asked: WebhookReceiver = typeof given === 'string' || given instanceof URL ? { url: given } : given
    checkOptions('the receiver of a webhook', asked, RECEIVER_OPTIONS)
    const own = asked.secret === undefined ? keys : keysOf(asked.secret)
    if (own === undefined) {
      throw new InvalidOptionError('A webhook has no secret.', {
        advice: 'Set `secret`, or have the function of `url` give { url, secret }.',
      })
    }
    return { url: checkUrl(asked.url), keys: own, headers, publicOnly }
  }
  const choose = typeof url === 'function' ? url : undefined
  return {
    fixed: choose === undefined ? receiver(url as string | URL, false) : undefined,
    receiverOf: async (event) =>
      receiver(await withTimeout(Promise.resolve(choose?.(event) as string), timeoutMs), !allowPrivateAddresses),
    concurrency: checkNumber('concurrency', options.concurrency ?? 8, 1, 1000),
    timeoutMs,
    maxEventBytes: checkNumber('maxEventBytes', options.maxEventBytes ?? 1_000_000, 1, 1e9),
    redirectOrigins: new Set((options.redirectOrigins ?? []).map((origin) => checkUrl(origin).origin)),
    tls: options.tls ?? {},
    attributesOf: attributesBy('webhookSink()', options.cloudEvents, BINDINGS.http),
  }
}

/** A URL with a password in it would show it in every error. */
function checkUrl(given: unknown): URL {
  const text = given instanceof URL ? given.href : given
  const url = typeof text === 'string' && URL.canParse(text) ? new URL(text) : undefined
  if (url === undefined || !/^https?:$/.test(url.protocol)) {
    throw new InvalidOptionError(`The url of a webhook is no http or https URL${url && ` but ${url.protocol}`}.`, {
      advice: "Use one such as 'https://books.example.com/events'.",
    })
  }
  if (url.username !== '' || url.password !== '') {
    throw new InvalidOptionError(`The url of the webhook at ${url.host} holds a user or a password.`, {
      advice: 'Put them into `headers`, as Authorization.',
    })
  }
  return url
}

function checkHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  const checked: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) {
    const fault = typeof value !== 'string' ? `the header ${name} is not text` : headerFault(name, value)
    if (fault !== undefined || isOurs(name)) {
      throw new InvalidOptionError(`headers: ${fault ?? `the header ${name} is set by the sink`}.`, {
        advice: 'Pass headers of your own, such as { authorization: `Bearer ${token}` }.',
      })
    }
    checked[name.toLowerCase()] = value
  }
  return checked
}

function checkNumber(name: string, value: unknown, least: number, most: number): number {
  if (Number.isInteger(value) && (value as number) >= least && (value as number) <= most) return value as number
  throw new InvalidOptionError(`${name} is ${String(value)}.`, {
    advice: `Use a whole number from ${least} to ${most}.`,
  })
}
