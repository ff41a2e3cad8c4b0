import { InvalidOptionError } from '../errors.ts'
import { type BatchContext, ConcurrentStreams, type Delivery, type OutboxEvent, type Sink } from '../outbox/index.ts'
import { onAbort } from '../postgres/index.ts'
import { nameOf, NOT_BEGUN, refusalOf } from './reasons.ts'
import { SinkUse } from './sinkUse.ts'
import { readAnswer, readFailure } from './webhookAnswer.ts'
import { type Receiver, planWebhook, type WebhookOptions, type WebhookPlan } from './webhookOptions.ts'
import { Connections, type HttpAnswer, RequestTimeoutError } from './webhookRequest.ts'
import { factsOf, sign } from './webhookSignature.ts'

export {
  type WebhookAnswer,
  webhookConsumer,
  type WebhookConsumer,
  type WebhookConsumerOptions,
} from './webhookConsumer.ts'
export type { CloudEventsOptions } from './cloudEvents.ts'
export type { WebhookOptions, WebhookReceiver } from './webhookOptions.ts'
export type { WebhookTls } from './webhookRequest.ts'
export { type VerifyOptions, verifyWebhook, type WebhookHeaders } from './webhookSignature.ts'

/**
 * A sink that posts events to HTTP endpoints, signed as https://www.standardwebhooks.com says. One request of a stream is in progress at
 * a time, up to `concurrency` at a host. A receiver takes them with `verifyWebhook()`.
 *
 * @example
 * const sink = webhookSink({ url: 'https://books.example.com/events', secret: process.env['WEBHOOK_SECRET'] ?? '' })
 * await lockstep.outbox.dispatcher({ sink }).run({ signal })
 *
 * @example
 * // Each customer has an endpoint and a secret of its own. What they enter must not lead into your network: it is checked.
 * webhookSink({ url: async ({ key }) => ({ url: await endpointOf(key), secret: await secretOf(key) }) })
 */
export function webhookSink(options: WebhookOptions): Sink {
  return new WebhookSink(planWebhook(options))
}

const MOST_REDIRECTS = 3
const LONGEST_HOLD_MS = 24 * 60 * 60 * 1000
/** As many streams as a batch can have: what is in progress at once is limited for each host. */
const STREAMS_AT_ONCE = 10_000
/** How many requests can be left in progress for slow receivers: each keeps its event in memory. */
const MOST_SLOW = 1000
/** How long streams of a slow host are parked at once. */
const SLOW_FOR_MS = 60_000

/** A request in progress. */
interface Request {
  /** By `performance.now()`. */
  since: number
}

/** A host, as all batches see it. */
interface Host {
  readonly active: Set<Request>
  /** Those that wait for one of these to end. */
  readonly waiting: Set<() => void>
  /** Nothing is sent before. */
  holdUntil: number
  /** Until then its streams do not delay a batch. */
  slowUntil: number
}

/** What the events of one batch have in common. */
interface Batch {
  readonly silences: Silences
  readonly over: () => boolean
  readonly slowAfterMs: number | undefined
  readonly beside: boolean
}

/** A host, as one batch sees it: failures in a row. */
type Silences = Map<string, number>

class WebhookSink implements Sink {
  readonly name = 'webhook'
  readonly #plan: WebhookPlan
  readonly #connections: Connections
  readonly #hosts = new Map<string, Host>()
  readonly #streams: ConcurrentStreams
  readonly #use: SinkUse

  constructor(plan: WebhookPlan) {
    this.#plan = plan
    this.#connections = new Connections(plan.concurrency, plan.tls)
    this.#streams = new ConcurrentStreams({
      // Where all go to one host, the time of a stream begins when it is its turn there.
      concurrency: plan.fixed === undefined ? STREAMS_AT_ONCE : plan.concurrency,
      ownReceivers: plan.fixed === undefined,
      mostSlow: MOST_SLOW,
    })
    this.#use = new SinkUse(async () => {
      await this.#streams.settled()
      this.#connections.destroy()
    })
  }

  open(): Promise<void> {
    return this.#use.open()
  }

  send(events: readonly OutboxEvent[], context: BatchContext): Promise<readonly Delivery[]> {
    const { signal, owned, slowAfterMs, beside = false } = context
    // The clocks as well: a process that was stopped sees the signal only later.
    const over = (): boolean => this.#use.closed || signal.aborted || owned?.() === false
    const batch: Batch = { silences: new Map(), over, slowAfterMs, beside }
    return this.#use.track(this.#streams.send(events, context, (event, late) => this.#sendOne(event, batch, late)))
  }

  /**
   * Any answer shows that the receiver is there, whatever it says to a HEAD. If the URL depends on the event there is no receiver to ask: then
   * it is true, and the next batch shows.
   */
  async healthy(): Promise<boolean> {
    const { fixed, timeoutMs } = this.#plan
    if (this.#use.closed || fixed === undefined) return !this.#use.closed
    try {
      await this.#connections.ask('HEAD', fixed.url, fixed.headers, undefined, {
        publicOnly: fixed.publicOnly,
        timeoutMs,
      })
      return true
    } catch {
      return false
    }
  }

  close(): Promise<void> {
    return this.#use.close()
  }

  async #sendOne(event: OutboxEvent, batch: Batch, late: AbortSignal | undefined): Promise<Delivery> {
    if (batch.over()) return NOT_BEGUN
    const { maxEventBytes } = this.#plan
    const { body } = event
    if (body.length > maxEventBytes) {
      return {
        refused: `${nameOf(event)} has ${body.length} bytes, more than ${maxEventBytes}. Send a reference to what is large, or raise maxEventBytes.`,
      }
    }
    const facts = factsOf(event)
    if (typeof facts === 'string') return { refused: `${nameOf(event)} cannot be sent: ${facts}.` }
    try {
      Object.assign(facts, this.#plan.attributesOf?.(event))
    } catch (error) {
      return refusalOf(error)
    }
    let receiver: Receiver
    try {
      receiver = this.#plan.fixed ?? (await this.#plan.receiverOf(event))
    } catch (cause) {
      if (cause instanceof InvalidOptionError)
        return { refused: `${nameOf(event)} has no receiver: ${cause.message}`, cause }
      return { failed: `url failed for ${nameOf(event)}: ${String(cause)}`, cause }
    }
    const { origin, host: name } = receiver.url
    const host = this.#hostOf(origin)
    if (this.#putsAside(host, batch)) return { slow: `${name} has been slow for other events` }
    const request = { since: 0 }
    if (host.active.size < this.#plan.concurrency) begin(host, request)
    else if (!(await turnAt(host, request, late))) {
      return { slow: `it has not begun: ${host.active.size} requests are in progress at ${name}` }
    }
    try {
      if (batch.over()) return NOT_BEGUN
      const holdMs = host.holdUntil - performance.now()
      if (holdMs > 0) {
        return {
          unknown: `${name} has asked to be left alone for another ${Math.ceil(holdMs)} ms`,
          ...this.#wait(holdMs),
        }
      }
      const silent = batch.silences.get(origin) ?? 0
      if (silent >= this.#plan.concurrency) {
        return { unknown: `it was not tried: ${name} has not answered ${silent} times in a row` }
      }
      return await this.#post(event, receiver, facts, body, host, batch.silences)
    } finally {
      this.#leave(origin, host, request, batch)
    }
  }

  /** Whether the streams of a batch would wait for a host that is known to be slow. Where all go to one host, they have to. */
  #putsAside(host: Host, { slowAfterMs, beside }: Batch): boolean {
    if (slowAfterMs === undefined || beside || this.#plan.fixed !== undefined) return false
    const now = performance.now()
    if (host.slowUntil > now) return true
    for (const { since } of host.active) if (isSlowAnswer(now - since, slowAfterMs)) return true
    return false
  }

  async #post(
    event: OutboxEvent,
    receiver: Receiver,
    facts: Record<string, string>,
    body: Buffer,
    host: Host,
    silences: Silences,
  ): Promise<Delivery> {
    const { origin } = receiver.url
    try {
      Object.assign(facts, receiver.headers)
      facts['content-length'] = String(body.length)
      sign(facts, body, receiver.keys, Date.now())
      const answer = await this.#follow(receiver, facts, body)
      silences.delete(origin)
      const delivery = readAnswer(event, receiver.url, answer, Date.now())
      if (typeof delivery === 'object' && 'unknown' in delivery && delivery.retryAfterMs !== undefined) {
        const { unknown, retryAfterMs } = delivery
        host.holdUntil = performance.now() + Math.min(retryAfterMs, LONGEST_HOLD_MS)
        return { unknown, ...this.#wait(retryAfterMs) }
      }
      return delivery
    } catch (cause) {
      silences.set(origin, (silences.get(origin) ?? 0) + 1)
      return readFailure(event, receiver.url, cause)
    }
  }

  /** If nothing else gets through, a dispatcher waits as long as the receiver asks. All receivers must not wait because of one. */
  #wait(retryAfterMs: number): { readonly retryAfterMs?: number } {
    return this.#plan.fixed === undefined ? {} : { retryAfterMs }
  }

  /** The answer, behind redirects that keep a POST a POST and lead where the signature may go. */
  async #follow(receiver: Receiver, headers: Record<string, string>, body: Buffer): Promise<HttpAnswer> {
    const { publicOnly } = receiver
    const until = performance.now() + this.#plan.timeoutMs
    let { url } = receiver
    for (let redirects = 0; ; redirects++) {
      const timeoutMs = until - performance.now()
      if (timeoutMs <= 0) throw new RequestTimeoutError(`no answer in ${this.#plan.timeoutMs} ms`)
      const answer = await this.#connections.ask('POST', url, headers, body, { publicOnly, timeoutMs })
      if (answer.status !== 307 && answer.status !== 308) return answer
      const next = this.#allowed(answer.location, url, receiver.url)
      if (next === undefined || redirects === MOST_REDIRECTS) return answer
      url = next
    }
  }

  #allowed(location: string | undefined, from: URL, first: URL): URL | undefined {
    if (location === undefined || !URL.canParse(location, from.href)) return undefined
    const next = new URL(location, from)
    const weaker = first.protocol === 'https:' && next.protocol !== 'https:'
    if (weaker || next.username !== '' || next.password !== '') return undefined
    return next.origin === first.origin || this.#plan.redirectOrigins.has(next.origin) ? next : undefined
  }

  #hostOf(origin: string): Host {
    const known = this.#hosts.get(origin)
    if (known !== undefined) return known
    const host: Host = { active: new Set(), waiting: new Set(), holdUntil: 0, slowUntil: 0 }
    this.#hosts.set(origin, host)
    return host
  }

  #leave(origin: string, host: Host, request: Request, { slowAfterMs }: Batch): void {
    const now = performance.now()
    if (slowAfterMs !== undefined && isSlowAnswer(now - request.since, slowAfterMs)) host.slowUntil = now + SLOW_FOR_MS
    host.active.delete(request)
    for (const next of host.waiting) {
      host.waiting.delete(next)
      next()
      return
    }
    if (host.active.size === 0 && Math.max(host.holdUntil, host.slowUntil) <= now) this.#hosts.delete(origin)
  }
}

/** Two such answers are more than a stream has time for. */
function isSlowAnswer(tookMs: number, slowAfterMs: number): boolean {
  return tookMs > slowAfterMs / 2
}

function begin(host: Host, request: Request): void {
  request.since = performance.now()
  host.active.add(request)
}

/** Waits for another request at the host to end, and takes its place. False where the stream's time was over before that. */
function turnAt(host: Host, request: Request, late: AbortSignal | undefined): Promise<boolean> {
  return new Promise((resolve) => {
    const next = (): void => {
      forget?.()
      begin(host, request)
      resolve(true)
    }
    host.waiting.add(next)
    const forget = late && onAbort(late, () => resolve(!host.waiting.delete(next)))
  })
}
