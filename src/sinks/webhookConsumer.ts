import { checkOptions, type OptionNames } from '../checkOptions.ts'
import {
  BROKER_CONSUMER_OPTIONS,
  type BrokerConsumerOptions,
  type ConsumedEvent,
  type ConsumedEvents,
  type EventHandler,
  type ListHandler,
  openWindow,
  type StoppedKey,
} from '../consumers/index.ts'
import { WebhookUnverifiedError } from '../errors.ts'
import type { EventMap } from '../events/index.ts'
import type { ReceivedEvent } from './message.ts'
import { verifyWebhook, type WebhookHeaders } from './webhookSignature.ts'

/** What `webhookConsumer()` takes. */
export interface WebhookConsumerOptions<
  Client = unknown,
  Events extends object = EventMap,
  Consumed extends object = EventMap,
> extends Omit<BrokerConsumerOptions<Client, Events, Consumed>, 'unreadable' | 'giveUp' | 'attempts' | 'backoffMs'> {
  /** The secret of the sender; several during a rotation. */
  readonly secret: string | readonly string[]
  /** How much the clocks can differ, plus the time on the network. Default 300,000. */
  readonly toleranceMs?: number
}

const {
  unreadable: _unreadable,
  giveUp: _giveUp,
  attempts: _attempts,
  backoffMs: _backoffMs,
  ...COMMON_OPTIONS
} = BROKER_CONSUMER_OPTIONS
const WEBHOOK_CONSUMER_OPTIONS: OptionNames<WebhookConsumerOptions> = {
  ...COMMON_OPTIONS,
  secret: true,
  toleranceMs: true,
}

/** What is answered to a request. */
export interface WebhookAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

/** A receiver of webhooks. */
export interface WebhookConsumer extends AsyncDisposable {
  readonly name: string
  /** Answers a request of the fetch API. 204: its effect is committed. */
  fetch(request: Request): Promise<Response>
  /** The same for any server. `body` is the body as it came, byte by byte. */
  receive(headers: WebhookHeaders, body: Uint8Array | string): Promise<WebhookAnswer>
  /** Takes no more requests, and comes back when those that are being handled were answered. */
  stop(): Promise<void>
}

/**
 * Receives what `webhookSink()` posts: each event exactly once, in order per key, keys in parallel. The sender keeps the order of a key, pauses
 * a key that fails, and tries again. While `maxInFlight` requests are being handled, others get 503.
 *
 * @example
 * const consumer = webhookConsumer('billing', { lockstep, secret }, async (event, tx) => {
 *   await tx.query('INSERT INTO invoices (order_id, seq) VALUES ($1, $2)', [event.key, event.seq])
 * })
 * app.post('/events', (c) => consumer.fetch(c.req.raw))
 */
export function webhookConsumer<Client = unknown, Events extends object = EventMap, Consumed extends object = EventMap>(
  name: string,
  options: WebhookConsumerOptions<Client, Events, Consumed> & { readonly lists: true },
  handler: ListHandler<ConsumedEvents<Consumed>, Client, Events>,
): WebhookConsumer
export function webhookConsumer<Client = unknown, Events extends object = EventMap, Consumed extends object = EventMap>(
  name: string,
  options: WebhookConsumerOptions<Client, Events, Consumed>,
  handler: EventHandler<ConsumedEvents<Consumed>, Client, Events>,
): WebhookConsumer
export function webhookConsumer(
  name: string,
  options: WebhookConsumerOptions,
  handler: EventHandler | ListHandler,
): WebhookConsumer {
  checkOptions('webhookConsumer()', options, WEBHOOK_CONSUMER_OPTIONS)
  const { secret, toleranceMs, ...rest } = options
  const verify = (headers: WebhookHeaders, body: Uint8Array | string): ReceivedEvent =>
    verifyWebhook(headers, body, secret, toleranceMs === undefined ? {} : { toleranceMs })
  const waiting = new Map<ConsumedEvent, (answer: WebhookAnswer) => void>()
  // An event that fails is answered at once: the sender has it still, and tries again.
  const stopped = ({ event, kind, reason }: StoppedKey<ConsumedEvent>): boolean => {
    waiting.get(event)?.(answerTo(kind, reason))
    return true
  }
  const window = openWindow('webhookConsumer()', 'webhook', name, rest, handler, stopped)
  let closed = false

  const receive = async (headers: WebhookHeaders, body: Uint8Array | string): Promise<WebhookAnswer> => {
    let event: ReceivedEvent
    try {
      event = verify(headers, body)
    } catch (error) {
      if (error instanceof WebhookUnverifiedError) return answer(401, error.message)
      throw error
    }
    if (closed || window.isFull) return { ...answer(503, 'busy'), headers: { ...PLAIN, 'retry-after': '1' } }
    return new Promise((resolve) => {
      const end = (given: WebhookAnswer): void => {
        waiting.delete(event)
        resolve(given)
      }
      waiting.set(event, end)
      const again = (): void => end(answer(503, 'stopping'))
      try {
        window.take({ event, bytes: event.body.length, done: () => end(answer(204, '')), again })
      } catch (error) {
        waiting.delete(event)
        throw error
      }
    })
  }
  const stop = async (): Promise<void> => {
    closed = true
    await window.close()
  }
  return {
    name,
    receive,
    async fetch(request) {
      const given = await receive(request.headers, new Uint8Array(await request.arrayBuffer()))
      return new Response(given.status === 204 ? null : given.body, { status: given.status, headers: given.headers })
    },
    stop,
    [Symbol.asyncDispose]: stop,
  }
}

const PLAIN = { 'content-type': 'text/plain; charset=utf-8' }

function answer(status: number, body: string): WebhookAnswer {
  return { status, headers: status === 204 ? {} : PLAIN, body }
}

/** 4xx counts against the event, 503 does not: the sender tries again in any case. Why the handler failed is not the sender's to know. */
function answerTo(kind: StoppedKey<ConsumedEvent>['kind'], reason: string): WebhookAnswer {
  if (kind === 'failed') return answer(422, 'The event could not be handled.')
  if (kind === 'diverged') return answer(409, reason)
  return { ...answer(503, reason), headers: { ...PLAIN, 'retry-after': '1' } }
}
