import { byStream, type Delivery, type OutboxEvent } from '../outbox/index.ts'
import { faultOf, type KafkaFault, type KafkaTopicMessages } from './kafkaClient.ts'
import type { HeadersOf } from './cloudEvents.ts'
import { nameOf, refusalOf, textOf } from './reasons.ts'

/** An event that can go: its topic is one of Kafka's, and it is not too large. */
export interface ReadyEvent {
  readonly event: OutboxEvent
  /** Its place in the batch. */
  readonly place: number
  readonly topic: string
  readonly headers: Record<string, string>
  readonly sizeBytes: number
}

/** Sends events as one request, or one transaction: all are confirmed when it returns. */
export type KafkaRequest = (group: readonly ReadyEvent[]) => Promise<void>

export interface BatchRules {
  /** The topic at Kafka. */
  topicOf(topic: string): string
  readonly maxMessageBytes: number
  readonly headersOf: HeadersOf
  /** Whether nothing more may be begun, and why. */
  over(): string | undefined
  /** Whether a request with this stream, which was given up, may still be in progress. */
  isLate(stream: string): boolean
}

/** What Kafka itself adds: the record's own lengths and times, and the batch around it. */
const RECORD_BYTES = 100
const HEADER_BYTES = 6
const TOPIC_NAME = /^(?!\.\.?$)[a-zA-Z0-9._-]{1,249}$/
type NotSent = Exclude<Delivery, 'sent'>
const NOT_BEGUN: NotSent = { unknown: 'it was not begun: what stands before it was not confirmed' }

export const streamOf = ({ topic, key }: OutboxEvent): string => `${topic}\0${key}`

/** A batch on its way: the outcome of each event, and which streams were stopped. */
export class KafkaBatch {
  readonly answers: Delivery[]
  readonly ready: readonly ReadyEvent[]
  readonly #rules: BatchRules
  /** The place from which on a stream is not sent. */
  readonly #stopped = new Map<string, number>()

  constructor(events: readonly OutboxEvent[], rules: BatchRules) {
    this.#rules = rules
    this.answers = events.map(() => NOT_BEGUN)
    const ready: ReadyEvent[] = []
    const topics = new Map<string, string | NotSent>()
    events.forEach((event, place) => {
      if (this.#isStopped(event, place)) return
      let topic = topics.get(event.topic)
      if (topic === undefined) topics.set(event.topic, (topic = this.#topicOf(event.topic)))
      if (typeof topic !== 'string') return this.#stop(event, place, topic)
      let headers: Record<string, string>
      try {
        headers = rules.headersOf(event)
      } catch (error) {
        return this.#stop(event, place, refusalOf(error))
      }
      const sizeBytes = sizeOf(event, headers)
      if (sizeBytes <= rules.maxMessageBytes) ready.push({ event, place, topic, headers, sizeBytes })
      else this.#stop(event, place, tooLarge(event, sizeBytes, rules.maxMessageBytes))
    })
    this.ready = ready
  }

  /** Keeps back what may still be in progress from an earlier batch: it would come behind. */
  withoutLate(): readonly ReadyEvent[] {
    const late = { unknown: 'an earlier request with its stream was given up, and the client may still be sending it' }
    for (const [stream, places] of byStream(this.ready.map(({ event }) => event))) {
      const first = this.ready[places[0] as number] as ReadyEvent
      if (this.#rules.isLate(stream)) this.#stop(first.event, first.place, late)
    }
    return this.ready.filter(({ event, place }) => !this.#isStopped(event, place))
  }

  /**
   * Sends a group by one request. Where an event or a topic is at fault, the group is divided until it is known which. Says whether
   * more may be begun.
   */
  async send(group: readonly ReadyEvent[], request: KafkaRequest): Promise<boolean> {
    const left = this.#stopped.size === 0 ? group : group.filter(({ event, place }) => !this.#isStopped(event, place))
    if (left.length === 0) return true
    const over = this.#rules.over()
    if (over !== undefined) return this.#unknown(left, `it was not begun: ${over}`, undefined)
    try {
      await request(left)
    } catch (error) {
      return this.#divide(left, error, request)
    }
    for (const { place } of left) this.answers[place] = 'sent'
    return true
  }

  async #divide(group: readonly ReadyEvent[], error: unknown, request: KafkaRequest): Promise<boolean> {
    const fault = faultOf(error)
    if (fault === 'event') {
      if (group.length === 1) return this.#refuse(group[0] as ReadyEvent, error)
      const middle = group.length >> 1
      return (await this.send(group.slice(0, middle), request)) && (await this.send(group.slice(middle), request))
    }
    const topics = fault === 'topic' ? byTopic(group) : []
    if (topics.length > 1) {
      for (const topic of topics) if (!(await this.send(topic, request))) return false
      return true
    }
    this.#unknown(group, reasonOf(fault, error), error)
    return fault === 'topic'
  }

  #refuse({ event, place }: ReadyEvent, error: unknown): boolean {
    const refused = `Kafka refuses ${nameOf(event)}: ${textOf(error)}. Make it smaller, or let its topic take it.`
    this.#stop(event, place, { refused, cause: error })
    return true
  }

  #unknown(group: readonly ReadyEvent[], reason: string, cause: unknown): false {
    for (const { event, place } of group) {
      this.#stop(event, place, { unknown: `${nameOf(event)}: ${reason}`, ...(cause === undefined ? {} : { cause }) })
    }
    return false
  }

  #stop(event: OutboxEvent, place: number, answer: Delivery): void {
    this.answers[place] = answer
    const stream = streamOf(event)
    this.#stopped.set(stream, Math.min(place, this.#stopped.get(stream) ?? place))
  }

  #isStopped(event: OutboxEvent, place: number): boolean {
    return this.#stopped.size > 0 && place >= (this.#stopped.get(streamOf(event)) ?? Infinity)
  }

  #topicOf(topic: string): string | NotSent {
    try {
      const name: unknown = this.#rules.topicOf(topic)
      if (typeof name === 'string' && TOPIC_NAME.test(name)) return name
      return {
        refused:
          `The topic ${topic} would be ${JSON.stringify(name)} at Kafka, which takes 1 to 249 letters, digits, dots, ` +
          "underscores and hyphens. Map it with the sink's option `topic`.",
      }
    } catch (cause) {
      return { failed: `The sink's option \`topic\` threw for ${topic}: ${textOf(cause)}`, cause }
    }
  }
}

/** The groups that are sent by one request each: not larger than what a topic takes as one. */
export function chunksOf(events: readonly ReadyEvent[], maxBytes: number): ReadyEvent[][] {
  const chunks: ReadyEvent[][] = []
  let left = 0
  for (const event of events) {
    if (event.sizeBytes > left || chunks.length === 0) {
      chunks.push([])
      left = maxBytes
    }
    left -= event.sizeBytes
    chunks.at(-1)?.push(event)
  }
  return chunks
}

/** Topics have nothing to do with each other. */
export function byTopic(events: readonly ReadyEvent[]): ReadyEvent[][] {
  const topics = new Map<string, ReadyEvent[]>()
  for (const event of events) {
    const list = topics.get(event.topic)
    if (list === undefined) topics.set(event.topic, [event])
    else list.push(event)
  }
  return [...topics.values()]
}

/** Made again for every request: some clients write into their messages. */
export function messagesOf(events: readonly ReadyEvent[]): KafkaTopicMessages[] {
  return byTopic(events).map((list) => ({
    topic: (list[0] as ReadyEvent).topic,
    messages: list.map(({ event, headers }) => ({ key: event.key, value: event.body, headers })),
  }))
}

function sizeOf({ key, body }: OutboxEvent, headers: Record<string, string>): number {
  let size = RECORD_BYTES + Buffer.byteLength(key) + body.length
  for (const name in headers) {
    size += HEADER_BYTES + Buffer.byteLength(name) + Buffer.byteLength(headers[name] as string)
  }
  return size
}

function tooLarge(event: OutboxEvent, sizeBytes: number, maxBytes: number): Delivery {
  return {
    refused:
      `${nameOf(event)} has ${sizeBytes} bytes as a message, more than ${maxBytes}. ` +
      "Store what is large elsewhere and send a reference, or raise the sink's maxMessageBytes and the topic's max.message.bytes.",
  }
}

function reasonOf(fault: KafkaFault, error: unknown): string {
  if (fault === 'fenced') {
    return (
      'another producer has taken its transactional id: the shard has a new owner, or another outbox has the same ' +
      `transactionalIdPrefix (${textOf(error)})`
    )
  }
  return `Kafka did not confirm it: ${textOf(error)}`
}
