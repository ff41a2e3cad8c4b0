import { InvalidOption } from '../errors.ts'
import { type BatchContext, byStream, type Delivery, type OutboxEvent, type Sink } from '../outbox/index.ts'
import { nameOf, NOT_BEGUN } from './reasons.ts'
import { readAnswer, readFailure } from './webhookAnswer.ts'
import { type Receiver, planWebhook, type WebhookOptions, type WebhookPlan } from './webhookOptions.ts'
import { Connections, type HttpAnswer, NoAnswer } from './webhookRequest.ts'
import { factsOf, sign } from './webhookSignature.ts'

export type { WebhookOptions, WebhookReceiver } from './webhookOptions.ts'
export type { WebhookTls } from './webhookRequest.ts'
export { type VerifyOptions, verifyWebhook, type WebhookHeaders } from './webhookSignature.ts'

/**
 * A sink that posts events to HTTP endpoints, signed as https://www.standardwebhooks.com says. One request of a stream is under way at
 * a time, up to `concurrency` at a host. A receiver takes them with `verifyWebhook()`.
 *
 * @example
 * const sink = webhookSink({ url: 'https://books.example.com/events', secret: process.env['WEBHOOK_SECRET'] ?? '' })
 * await lockstep.dispatcher({ sink }).run({ signal })
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

/** A host, as all batches see it. */
interface Host {
  active: number
  readonly waiting: (() => void)[]
  /** Nothing is sent before: by `performance.now()`. */
  holdUntil: number
}

/** A host, as one batch sees it: failures in a row. */
type Silences = Map<string, number>

class WebhookSink implements Sink {
  readonly name = 'webhook'
  readonly #plan: WebhookPlan
  readonly #connections: Connections
  readonly #hosts = new Map<string, Host>()
  readonly #sending = new Set<Promise<unknown>>()
  #closed = false

  constructor(plan: WebhookPlan) {
    this.#plan = plan
    this.#connections = new Connections(plan.concurrency, plan.tls)
  }

  async send(events: readonly OutboxEvent[], { signal, owned }: BatchContext): Promise<readonly Delivery[]> {
    // The clocks as well: a process that was stopped hears of the signal only later.
    const over = (): boolean => this.#closed || signal.aborted || owned?.() === false
    const answers: Delivery[] = events.map(() => ({ unknown: 'an earlier event of its stream was not sent' }))
    const silences: Silences = new Map()
    const streams = [...byStream(events).values()].map(async (places) => {
      for (const place of places) {
        const answer = await this.#sendOne(events[place] as OutboxEvent, silences, over)
        answers[place] = answer
        if (answer !== 'sent') return
      }
    })
    const all = Promise.all(streams)
    this.#sending.add(all)
    try {
      await all
    } finally {
      this.#sending.delete(all)
    }
    return answers
  }

  /**
   * Any answer shows that somebody is there, whatever it says to a HEAD. Where the URL depends on the event there is nobody to ask: then
   * it is true, and the next batch shows.
   */
  async healthy(): Promise<boolean> {
    const { fixed, timeoutMs } = this.#plan
    if (this.#closed || fixed === undefined) return !this.#closed
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

  async close(): Promise<void> {
    this.#closed = true
    await Promise.all(this.#sending)
    this.#connections.destroy()
  }

  async #sendOne(event: OutboxEvent, silences: Silences, over: () => boolean): Promise<Delivery> {
    if (over()) return NOT_BEGUN
    const { maxEventBytes } = this.#plan
    const { body } = event
    if (body.length > maxEventBytes) {
      return {
        refused: `${nameOf(event)} has ${body.length} bytes, more than ${maxEventBytes}. Send a reference to what is large, or raise maxEventBytes.`,
      }
    }
    const facts = factsOf(event)
    if (typeof facts === 'string') return { refused: `${nameOf(event)} cannot be sent: ${facts}.` }
    let receiver: Receiver
    try {
      receiver = this.#plan.fixed ?? (await this.#plan.receiverOf(event))
    } catch (cause) {
      if (cause instanceof InvalidOption)
        return { refused: `${nameOf(event)} has no receiver: ${cause.message}`, cause }
      return { failed: `url failed for ${nameOf(event)}: ${String(cause)}`, cause }
    }
    const host = this.#hostOf(receiver.url.origin)
    if (host.active >= this.#plan.concurrency) await new Promise<void>((resolve) => host.waiting.push(resolve))
    else host.active++
    try {
      if (over()) return NOT_BEGUN
      const holdMs = host.holdUntil - performance.now()
      if (holdMs > 0) {
        return {
          unknown: `${receiver.url.host} has asked to be left alone for another ${Math.ceil(holdMs)} ms`,
          ...this.#wait(holdMs),
        }
      }
      const silent = silences.get(receiver.url.origin) ?? 0
      if (silent >= this.#plan.concurrency) {
        return { unknown: `it was not tried: ${receiver.url.host} has not answered ${silent} times in a row` }
      }
      return await this.#post(event, receiver, facts, body, host, silences)
    } finally {
      this.#leave(receiver.url.origin, host)
    }
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

  /** Where nothing else gets through, a dispatcher waits for as long as it is told: not all receivers for the sake of one. */
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
      if (timeoutMs <= 0) throw new NoAnswer(`no answer in ${this.#plan.timeoutMs} ms`)
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
    const host: Host = { active: 0, waiting: [], holdUntil: 0 }
    this.#hosts.set(origin, host)
    return host
  }

  #leave(origin: string, host: Host): void {
    const next = host.waiting.shift()
    if (next !== undefined) next()
    else if (--host.active === 0 && host.holdUntil <= performance.now()) this.#hosts.delete(origin)
  }
}
