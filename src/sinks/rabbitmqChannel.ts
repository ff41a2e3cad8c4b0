import type { Delivery, OutboxEvent } from '../outbox/index.ts'
import type { RabbitChannel } from './rabbitmqOptions.ts'
import { nameOf, NOT_BEGUN, textOf } from './reasons.ts'

/** Called once for each message. Never with `sent` before `publish()` has returned. */
export type Answer = (delivery: Delivery) => void

/** A message to send. */
interface Message {
  readonly event: OutboxEvent
  readonly routingKey: string
  readonly headers: Record<string, string>
  readonly body: Buffer
  /** Whether it can no longer begin. */
  readonly over: () => boolean
  readonly answer: Answer
}

/** One on its way. */
interface Waiting extends Message {
  since: number
  returned: Delivery | undefined
  settled: boolean
}

/** What the owner of a channel wants to know. */
export interface ChannelOwner {
  readonly exchange: string
  readonly timeoutMs: number
  /** Nothing was confirmed in time. */
  silent(): void
  /** The server has reported the size of the largest message it takes. */
  limited(bytes: number): void
}

/**
 * A channel, and what waits for its confirmation. However it ends, every message is answered once: a channel that was given up or
 * closed does not decide the outcome of later ones.
 */
export class ConfirmingChannel {
  readonly #channel: RabbitChannel
  readonly #owner: ChannelOwner
  /** By id, oldest first. */
  readonly #outstanding = new Map<string, Waiting>()
  /** Those that wait for the socket to take more. */
  #queue: Waiting[] = []
  #full = false
  #over = false
  #timer: NodeJS.Timeout | undefined

  constructor(channel: RabbitChannel, owner: ChannelOwner) {
    this.#channel = channel
    this.#owner = owner
    channel.on('return', (message) => this.#returned(message as ReturnedMessage))
    channel.on('drain', () => this.#drained())
    channel.on('error', (error) => this.#closedFor(error))
    channel.on('close', () => this.end(() => ({ unknown: 'the channel to RabbitMQ was closed' })))
  }

  get usable(): boolean {
    return !this.#over
  }

  publish(message: Message): void {
    const { event, answer } = message
    const waiting: Waiting = { ...message, since: performance.now(), returned: undefined, settled: false }
    if (this.#over) answer({ unknown: 'the channel to RabbitMQ is closed' })
    else if (this.#outstanding.has(event.id)) answer({ unknown: `${nameOf(event)} is already in progress` })
    else if (this.#full) {
      this.#queue.push(waiting)
      this.#watch()
    } else this.#write(waiting)
  }

  /** Everything that waits is answered; what comes later is of no account. */
  end(fateOf: (event: OutboxEvent, bytes: number) => Delivery): void {
    if (this.#over) return
    this.#over = true
    clearTimeout(this.#timer)
    const all = [...this.#outstanding.values(), ...this.#queue]
    this.#outstanding.clear()
    this.#queue = []
    for (const waiting of all) settle(waiting, fateOf(waiting.event, waiting.body.length))
  }

  /** Closes it at the server as well. */
  async close(): Promise<void> {
    this.end(() => ({ unknown: 'the channel to RabbitMQ was given up' }))
    try {
      await this.#channel.close()
    } catch {
      // It was closed already.
    }
  }

  #write(waiting: Waiting): void {
    const { event, routingKey, headers, body } = waiting
    this.#outstanding.set(event.id, waiting)
    try {
      const more = this.#channel.publish(
        this.#owner.exchange,
        routingKey,
        body,
        {
          persistent: true,
          mandatory: true,
          messageId: event.id,
          contentType: event.contentType,
          headers,
        },
        (error) => this.#confirmed(waiting, error),
      )
      if (!more) this.#full = true
      this.#watch()
    } catch (cause) {
      this.#outstanding.delete(event.id)
      settle(waiting, notPublished(event, cause))
    }
  }

  #confirmed(waiting: Waiting, error: unknown): void {
    if (waiting.settled) return
    this.#outstanding.delete(waiting.event.id)
    if (error === null || error === undefined) settle(waiting, waiting.returned ?? 'sent')
    else settle(waiting, { unknown: `RabbitMQ has not taken ${nameOf(waiting.event)}: ${textOf(error)}`, cause: error })
  }

  /** The server returns it because no queue takes it; the confirmation follows all the same. */
  #returned({ properties, fields }: ReturnedMessage): void {
    const waiting = this.#outstanding.get(String(properties?.messageId))
    if (waiting === undefined) return
    const { replyCode, replyText } = fields ?? {}
    waiting.returned = {
      refused:
        `RabbitMQ has returned ${nameOf(waiting.event)}: ${replyCode} ${replyText}. No queue is bound to the exchange ` +
        `"${this.#owner.exchange}" for the routing key "${waiting.routingKey}": bind one, or change routingKey.`,
    }
  }

  /** The server has closed the channel, and with it all that was in progress. */
  #closedFor(error: unknown): void {
    const { code } = error as { code?: unknown }
    const text = textOf(error)
    const limit = code === 406 ? Number(/larger than (?:\w+ )*max size (\d+)/.exec(text)?.[1]) : Number.NaN
    if (limit >= 0) this.#owner.limited(limit)
    const { exchange } = this.#owner
    const advice =
      code === 404
        ? ` Declare the exchange "${exchange}" before events are sent.`
        : code === 403
          ? ` Permit the user to write to the exchange "${exchange}".`
          : ''
    this.end((event, bytes) =>
      bytes > limit
        ? { refused: tooLarge(event, bytes, limit), cause: error }
        : { unknown: `${text}.${advice}`, cause: error },
    )
  }

  #drained(): void {
    this.#full = false
    while (!this.#full && !this.#over) {
      const next = this.#queue.shift()
      if (next === undefined) return
      next.since = performance.now()
      if (next.over()) settle(next, NOT_BEGUN)
      else this.#write(next)
    }
  }

  /** One timer for all: for the oldest. */
  #watch(): void {
    if (this.#timer !== undefined || this.#over) return
    const [oldest = this.#queue[0]] = this.#outstanding.values()
    if (oldest === undefined) return
    const leftMs = oldest.since + this.#owner.timeoutMs - performance.now()
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined
        const [first = this.#queue[0]] = this.#outstanding.values()
        if (first !== undefined && first.since + this.#owner.timeoutMs <= performance.now()) this.#owner.silent()
        else this.#watch()
      },
      Math.max(1, leftMs),
    )
  }
}

/** What a returned message has, of what is used. */
interface ReturnedMessage {
  readonly properties?: { readonly messageId?: unknown }
  readonly fields?: { readonly replyCode?: number; readonly replyText?: string }
}

function settle(waiting: Waiting, delivery: Delivery): void {
  if (waiting.settled) return
  waiting.settled = true
  waiting.answer(delivery)
}

export function tooLarge(event: OutboxEvent, bytes: number, most: number): string {
  return `${nameOf(event)} has ${bytes} bytes, more than ${most}. Send a reference to what is large, or raise maxEventBytes and the server's max_message_size.`
}

/** The client has thrown: because the channel is closed, or because it cannot encode this message. */
function notPublished(event: OutboxEvent, cause: unknown): Delivery {
  const { name } = cause as { name?: unknown }
  if (name === 'RangeError' || name === 'TypeError')
    return { refused: `${nameOf(event)} is no message for RabbitMQ: ${textOf(cause)}`, cause }
  return { unknown: `${nameOf(event)} was not published: ${textOf(cause)}`, cause }
}
