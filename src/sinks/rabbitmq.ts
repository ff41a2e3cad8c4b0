import { type BatchContext, byStream, type Delivery, type OutboxEvent, type Sink } from '../outbox/index.ts'
import { AnswerTimeoutError, withTimeout } from './withTimeout.ts'
import { type Answer, ConfirmingChannel, tooLarge } from './rabbitmqChannel.ts'
import {
  planRabbitmq,
  type RabbitChannel,
  type RabbitConnection,
  type RabbitmqOptions,
  type RabbitmqPlan,
} from './rabbitmqOptions.ts'

export {
  type RabbitConsumeChannel,
  type RabbitConsumeConnection,
  type RabbitDelivery,
  rabbitmqConsumer,
  type RabbitmqConsumerOptions,
} from './rabbitmqConsumer.ts'
export type { CloudEventsOptions } from './cloudEvents.ts'
export type { RabbitChannel, RabbitConnection, RabbitMessageOptions, RabbitmqOptions } from './rabbitmqOptions.ts'
import { nameOf, NOT_BEGUN, refusalOf, textOf } from './reasons.ts'
import { SinkUse } from './sinkUse.ts'

/**
 * A sink that publishes to an exchange of RabbitMQ's and waits for its confirmation: persistent, mandatory, one message of a stream under
 * way at a time, all streams in parallel on one channel. A message without a queue is refused.
 *
 * @example
 * const sink = rabbitmqSink({ connect: () => amqp.connect('amqp://localhost'), exchange: 'events' })
 * await lockstep.outbox.dispatcher({ sink }).run({ signal })
 */
export function rabbitmqSink(options: RabbitmqOptions): Sink {
  return new RabbitmqSink(planRabbitmq(options))
}

/** RabbitMQ takes these two for further routing keys. */
const ROUTING_HEADERS: readonly string[] = ['CC', 'BCC']

/** A connection, and the channel on it. */
interface Link {
  readonly connection: RabbitConnection
  channel: ConfirmingChannel | undefined
  /** Why the server takes nothing at present: it is short of memory or of disk. */
  blocked: string | undefined
  lost: boolean
}

class RabbitmqSink implements Sink {
  readonly name = 'rabbitmq'
  readonly #plan: RabbitmqPlan
  #link: Link | undefined
  #opening: Promise<ConfirmingChannel> | undefined
  /** The server's own limit, once it is known. */
  #limit = Number.POSITIVE_INFINITY
  readonly #use = new SinkUse(() => this.#end())

  constructor(plan: RabbitmqPlan) {
    this.#plan = plan
  }

  async send(events: readonly OutboxEvent[], { signal, owned }: BatchContext): Promise<readonly Delivery[]> {
    // The clocks as well: a process that was stopped sees the signal only later.
    const over = (): boolean => this.#use.closed || signal.aborted || owned?.() === false
    if (over()) return events.map(() => NOT_BEGUN)
    const sending = this.#open().then(
      (channel) => this.#publish(channel, events, over),
      (cause: unknown): Delivery[] => events.map(() => ({ unknown: `RabbitMQ: ${textOf(cause)}`, cause })),
    )
    return this.#use.track(sending)
  }

  open(): Promise<void> {
    return this.#use.open()
  }

  /** Whether a channel can be opened and the exchange is there. */
  async healthy(): Promise<boolean> {
    if (this.#use.closed) return false
    try {
      await this.#open()
      const link = this.#link
      if (link === undefined) return false
      // On a channel of its own: the server closes the one on which an exchange is missing.
      const opening = link.connection.createConfirmChannel()
      const channel = await this.#withTimeout(opening, 'open a channel', putAway)
      channel.on('error', () => undefined)
      if (this.#plan.exchange !== '')
        await this.#withTimeout(channel.checkExchange(this.#plan.exchange), 'look for the exchange')
      await this.#withTimeout(channel.close(), 'close a channel')
      return true
    } catch (error) {
      if (error instanceof AnswerTimeoutError && this.#link?.blocked === undefined) this.#drop(this.#link, error)
      return false
    }
  }

  close(): Promise<void> {
    return this.#use.close()
  }

  /** The connection is the sink's own: the next event opens another. */
  async #end(): Promise<void> {
    await this.#opening?.catch(() => undefined)
    const link = this.#link
    this.#link = undefined
    if (link === undefined) return
    link.lost = true
    try {
      await this.#withTimeout(link.channel?.close() ?? Promise.resolve(), 'close the channel')
      await this.#withTimeout(link.connection.close(), 'close the connection')
    } catch {
      // It was closed already, or the server says nothing: there is nothing more to be done for it.
    }
  }

  /** The channel, opened if there is none. */
  async #open(): Promise<ConfirmingChannel> {
    const link = this.#link
    if (link?.blocked !== undefined) throw new Error(`the server takes nothing at present: ${link.blocked}`)
    if (link?.channel?.usable === true) return link.channel
    this.#opening ??= this.#reopen().finally(() => (this.#opening = undefined))
    return this.#opening
  }

  async #reopen(): Promise<ConfirmingChannel> {
    let link = this.#link
    if (link === undefined) {
      const connecting = Promise.resolve().then(() => this.#plan.connect())
      link = this.#keep(await this.#withTimeout(connecting, 'connect', (late) => abandon(late)))
    }
    try {
      const opening = link.connection.createConfirmChannel()
      const channel = await this.#withTimeout(opening, 'open a channel', putAway)
      const { exchange, timeoutMs } = this.#plan
      const kept: Link = link
      const confirming = new ConfirmingChannel(channel, {
        exchange,
        timeoutMs,
        silent: () => this.#silent(kept, confirming),
        limited: (bytes) => (this.#limit = bytes),
      })
      kept.channel = confirming
      if (kept.lost) confirming.end(() => NOT_BEGUN)
      return confirming
    } catch (error) {
      if (link.blocked === undefined) this.#drop(link, error)
      throw error
    }
  }

  #keep(connection: RabbitConnection): Link {
    const link: Link = { connection, channel: undefined, blocked: undefined, lost: false }
    connection.on('error', (error) => this.#lost(link, error))
    connection.on('close', (error) => this.#lost(link, error))
    connection.on('blocked', (reason) => (link.blocked = String(reason)))
    connection.on('unblocked', () => (link.blocked = undefined))
    this.#link = link
    return link
  }

  /** The connection has ended. With a code from 500 on the server says that it was sent what it cannot read. */
  #lost(link: Link, cause: unknown): void {
    link.lost = true
    if (this.#link === link) this.#link = undefined
    const reason = `the connection to RabbitMQ was lost${cause === undefined ? '' : `: ${textOf(cause)}`}`
    const { code } = (cause ?? {}) as { code?: unknown }
    const protocol = typeof code === 'number' && code >= 500
    link.channel?.end((event) =>
      protocol ? { failed: `${nameOf(event)}: ${reason}`, cause } : { unknown: reason, cause },
    )
  }

  /** Nothing was confirmed in time: whatever comes on this channel now comes too late. */
  #silent(link: Link, channel: ConfirmingChannel): void {
    const { timeoutMs } = this.#plan
    const why = link.blocked === undefined ? '' : `: the server takes nothing at present: ${link.blocked}`
    channel.end((event) => ({ unknown: `RabbitMQ has not confirmed ${nameOf(event)} in ${timeoutMs} ms${why}` }))
    // A connection that is blocked comes back by itself. Another one would be blocked as well, and this one would stay.
    if (link.blocked === undefined) this.#drop(link, undefined)
    else void channel.close()
  }

  /** A connection that is of no use any more: the next event opens another. */
  #drop(link: Link | undefined, cause: unknown): void {
    if (link === undefined || link.lost) return
    this.#lost(link, cause)
    abandon(link.connection)
  }

  #publish(channel: ConfirmingChannel, events: readonly OutboxEvent[], over: () => boolean): Promise<Delivery[]> {
    const answers: Delivery[] = events.map(() => ({ unknown: 'an earlier event of its stream was not sent' }))
    return new Promise((resolve) => {
      const streams = byStream(events)
      let left = streams.size
      if (left === 0) resolve(answers)
      for (const places of streams.values()) {
        let at = 0
        const answered = (delivery: Delivery): void => {
          answers[places[at] as number] = delivery
          if (delivery === 'sent' && ++at < places.length) next()
          else if (--left === 0) resolve(answers)
        }
        const next = (): void => {
          const event = events[places[at] as number] as OutboxEvent
          if (over()) answered(NOT_BEGUN)
          else this.#publishOne(channel, event, over, answered)
        }
        next()
      }
    })
  }

  #publishOne(channel: ConfirmingChannel, event: OutboxEvent, over: () => boolean, answered: Answer): void {
    const { body } = event
    const most = Math.min(this.#plan.maxEventBytes, this.#limit)
    if (body.length > most) {
      answered({ refused: tooLarge(event, body.length, most) })
      return
    }
    let routingKey: string
    try {
      routingKey = this.#plan.routingKeyOf(event)
    } catch (cause) {
      answered({ failed: `routingKey failed for ${nameOf(event)}: ${textOf(cause)}`, cause })
      return
    }
    let headers: Record<string, string>
    try {
      headers = this.#plan.headersOf(event)
    } catch (error) {
      answered(refusalOf(error))
      return
    }
    const fault = faultOf(headers, routingKey)
    if (fault === undefined) channel.publish({ event, routingKey, headers, body, over, answer: answered })
    else answered({ refused: `${nameOf(event)} is no message for RabbitMQ: ${fault}.` })
  }

  /** What comes too late is put away. */
  async #withTimeout<T>(work: Promise<T>, what: string, late: (value: T) => unknown = () => undefined): Promise<T> {
    try {
      return await withTimeout(work, this.#plan.timeoutMs, `could not ${what}`)
    } catch (error) {
      if (error instanceof AnswerTimeoutError) work.then(late).catch(() => undefined)
      throw error
    }
  }
}

function faultOf(headers: Readonly<Record<string, string>>, routingKey: unknown): string | undefined {
  if (typeof routingKey !== 'string') return `its routing key is ${String(routingKey)}`
  const bytes = Buffer.byteLength(routingKey)
  if (bytes > 255) return `its routing key has ${bytes} bytes, more than 255`
  for (const name of Object.keys(headers)) {
    if (ROUTING_HEADERS.includes(name)) return `RabbitMQ takes the header ${name} for further routing keys`
    if (Buffer.byteLength(name) > 255) return `the name of a header has more than 255 bytes: ${name.slice(0, 30)}…`
  }
  return undefined
}

async function putAway(channel: RabbitChannel): Promise<void> {
  channel.on('error', () => undefined)
  await channel.close()
}

/** Closes a connection without waiting for it: it may be one on which nothing is answered. */
function abandon(connection: RabbitConnection): void {
  connection.on('error', () => undefined)
  connection.close().catch(() => undefined)
}
