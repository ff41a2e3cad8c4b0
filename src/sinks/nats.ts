import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import { type BatchContext, ConcurrentStreams, type Delivery, type OutboxEvent, type Sink } from '../outbox/index.ts'
import { LONGEST_TIMER_MS } from '../postgres/index.ts'
import { BINDINGS, type CloudEventsOptions, headersBy } from './cloudEvents.ts'
import { withTimeout } from './withTimeout.ts'
import { nameTemplate } from './nameTemplate.ts'
import { JetStream, type NatsClient } from './natsClient.ts'
import { headerLines, type Stored, WireHeaders } from './natsMessage.ts'
import { type EventStream, startOf, type StreamStartOption } from '../consumers/index.ts'

export {
  natsConsumer,
  type NatsConsumerOptions,
  type NatsDeliveries,
  type NatsDelivery,
  type NatsPullConsumer,
} from './natsConsumer.ts'
export type { CloudEventsOptions } from './cloudEvents.ts'
export type { NatsClient } from './natsClient.ts'
export { type NatsMessage, readNatsMessage } from './natsMessage.ts'
export type { EventStream, StreamStart, StreamStartOption } from '../consumers/index.ts'
import { notPlaced } from './reasons.ts'
import { SinkUse } from './sinkUse.ts'

export interface NatsSinkOptions {
  /** A connection of `@nats-io/transport-node`, connected by the caller. The sink never closes it. */
  readonly client: NatsClient
  /** The JetStream stream that stores the subjects. It must exist. */
  readonly stream: string | ((stream: EventStream) => string)
  /** The subjects. Topic and key are encoded in it, each as (a part of) one token. Default `{topic}.{key}`. */
  readonly subject?: string
  /** The number with which a subject can begin if JetStream has no message of it. Default 1. */
  readonly start?: StreamStartOption
  /** The prefix of JetStream’s API, if it has a domain or was imported from another account. Default `$JS.API`. */
  readonly apiPrefix?: string
  /** After this time without an answer, the outcome of an event is unknown. Default 10 s. */
  readonly timeoutMs?: number
  /** Adds the attributes of CloudEvents 1.0 as headers, `ce-id` and so on. Default: none. */
  readonly cloudEvents?: CloudEventsOptions
}

const NATS_OPTIONS: OptionNames<NatsSinkOptions> = {
  client: true,
  stream: true,
  subject: true,
  start: true,
  apiPrefix: true,
  timeoutMs: true,
  cloudEvents: true,
}

const DEFAULT_SUBJECT = '{topic}.{key}'
const DEFAULT_API = '$JS.API'
const DEFAULT_TIMEOUT_MS = 10_000
/** How many subjects are in progress at once. */
const SIDE_BY_SIDE = 256
/** For how many subjects the end is remembered. */
const REMEMBERED = 50_000
/** How often an event is tried again at once, after the subject was found to end elsewhere. */
const ATTEMPTS = 4
/** A server hangs up on a line of more than 4,096 bytes, and the address of the answer stands in it as well. */
const LONGEST_SUBJECT = 3_500

const CLOSED: Delivery = { unknown: 'the sink is closed' }

/**
 * Events into a JetStream stream: a subject for each stream of events. Every message is published with the place of the one before it
 * as the subject's expected last, so the server itself takes #7 only right behind #6.
 *
 * The sink remembers at which place of the JetStream stream the last event of a subject stands. That a memory is old does no harm: what it
 * says, that #6 stands at place 123, stays true forever, and #7 is taken only while 123 is the subject's last. So a dispatcher that was
 * paused, and whatever of it was still on the way, either finds #6 on top, and then #7 comes to its own place, or is refused; then the
 * sink looks at the subject again and finds #7 there already. Only places of a stream that was made again, or has lost its end, may mean
 * something else: a new connection forgets them all, and so does the first subject that is found to have gone back. For a subject that is empty, memory counts for nothing: it would let a late #6 in after everything had
 * expired. There `start` alone decides.
 *
 * @example
 * const client = await connect({ servers: '127.0.0.1:4222' })
 * await lockstep.outbox.dispatcher({ sink: natsSink({ client, stream: 'EVENTS' }) }).run({ signal })
 */
export function natsSink(options: NatsSinkOptions): Sink {
  checkOptions('natsSink()', options, NATS_OPTIONS)
  const { client, apiPrefix = DEFAULT_API, timeoutMs = DEFAULT_TIMEOUT_MS } = options
  if (!Number.isSafeInteger(timeoutMs) || timeoutMs < 1 || timeoutMs > LONGEST_TIMER_MS) {
    throw new InvalidOptionError(`timeoutMs is ${String(timeoutMs)}.`, {
      advice: `Pass a whole number from 1 to ${LONGEST_TIMER_MS}.`,
    })
  }
  checkName('apiPrefix', apiPrefix, /^[^\s*>]+$/)
  const jetStream = new JetStream(client, apiPrefix, timeoutMs)
  const subjectOf = subjects(options.subject)
  const streamOf = streams(options.stream)
  const startAt = startOf(options.start)
  const headersOf = headersBy('natsSink()', options.cloudEvents, BINDINGS.nats)
  const ends = new Ends()
  const streamsAtOnce = new ConcurrentStreams({ concurrency: SIDE_BY_SIDE })
  const use = new SinkUse()
  let connection = ''
  let flush: Promise<boolean> | undefined

  async function deliver(event: OutboxEvent, signal: AbortSignal): Promise<Delivery> {
    if (use.closed) return CLOSED
    const place = placeOf(event)
    if (!('subject' in place)) return place
    const { stream, subject, start } = place
    const lines = headerLines(event, stream, headersOf)
    if (typeof lines !== 'string') return lines
    const { body } = event
    let end = ends.of(subject)
    for (let attempt = 0; attempt < ATTEMPTS && !signal.aborted; attempt++) {
      let behind: number
      if (end?.seq === event.seq - 1) behind = end.at
      // Tried without a look, where the subject may begin with it: if it is not empty, the server says so.
      else if (end === undefined && attempt === 0 && start === event.seq) behind = 0
      else {
        const looked = await look(event, place)
        if (typeof looked !== 'number') return looked
        behind = looked
      }
      const headers = new WireHeaders(lines, behind)
      const size = headers.length + body.length
      if (size > (client.info?.max_payload ?? Infinity)) return tooLarge(event, size, 'max_payload of the server')
      const published = await jetStream.publish(stream, subject, body, headers)
      switch (published.kind) {
        case 'stored':
          ends.remember(subject, event.seq, published.at)
          return 'sent'
        case 'too large':
          return tooLarge(event, size, `max_msg_size of the stream ${stream}`)
        case 'failed':
          return published.answer
        case 'known': {
          // The server looks at the id before it looks at the place, and remembers ids of messages that are gone, and of other subjects.
          const looked = await look(event, place)
          if (typeof looked !== 'number') return looked
          return {
            unknown: `JetStream remembers the id of #${event.seq}, but ${subject} does not have it. It will be taken when the stream's duplicate_window has passed.`,
          }
        }
        case 'elsewhere':
          end = undefined
      }
    }
    return { unknown: `others write to ${subject} at the same time` }
  }

  interface Place {
    readonly stream: string
    readonly subject: string
    readonly start: number | 'anywhere'
  }

  function placeOf(event: OutboxEvent): Place | Exclude<Delivery, 'sent'> {
    const { topic, key, seq } = event
    try {
      const subject = subjectOf(event)
      if (subject.length <= LONGEST_SUBJECT) return { subject, stream: streamOf(event), start: startAt(event) }
      return {
        refused: `#${seq} of ${topic}/${key} has a subject of ${subject.length} bytes, more than ${LONGEST_SUBJECT}. Use shorter topics and keys.`,
      }
    } catch (error) {
      return notPlaced(event, error)
    }
  }

  /** Looks at the subject's end: gives the place behind which the event goes, or what is to be said of it. */
  async function look(event: OutboxEvent, { stream, subject, start }: Place): Promise<number | Delivery> {
    const last = await jetStream.last(stream, subject)
    if (hasGoneBack(last, ends.of(subject))) ends.clear()
    if (last === undefined) return start === 'anywhere' || start === event.seq ? 0 : empty(event, subject, start)
    if (!isStored(last)) return last
    const { seq, at } = last
    if (seq === undefined) return foreign(event, subject)
    if (seq === event.seq - 1) return at
    if (seq < event.seq) return gap(event, subject, seq)
    const found = seq === event.seq ? last : await find(event, stream, subject, at)
    if (found !== undefined && !isStored(found)) return found
    // What is below the end and not there any more was there: every number came behind the one before it. Unless it is of a later
    // generation than the last one: then its number was assigned again.
    if (found === undefined) {
      const isAgain = last.generation !== undefined && event.generation > last.generation
      return isAgain ? diverged(event, subject, 'removed') : 'sent'
    }
    if (found.id !== event.id) return diverged(event, subject, found.id)
    ends.remember(subject, event.seq, found.at)
    return 'sent'
  }

  /** Where a number below the subject's end stands: usually right behind the one before it; otherwise it is found by binary search. */
  async function find(
    event: OutboxEvent,
    stream: string,
    subject: string,
    end: number,
  ): Promise<Stored | Delivery | undefined> {
    const before = ends.of(subject)
    let [low, high] = [1, end]
    let from = before?.seq === event.seq - 1 && before.at < end ? before.at + 1 : low
    while (low <= high) {
      const found = await jetStream.next(stream, subject, from)
      if (found === undefined || !isStored(found) || found.seq === event.seq) return found
      if (found.seq === undefined) return foreign(event, subject)
      if (found.seq < event.seq) low = found.at + 1
      else high = from - 1
      from = Math.floor((low + high) / 2)
    }
    return undefined
  }

  return {
    name: 'nats',
    enforcesFences: true,
    async send(events: readonly OutboxEvent[], { dispatcher, signal }: BatchContext): Promise<Delivery[]> {
      const { client_id: id, server_id: server } = client.info ?? {}
      if (connection !== `${server}/${id}`) ends.clear()
      connection = `${server}/${id}`
      // Without a time for each stream: they have one server, and it is slow for all of them.
      return use.track(streamsAtOnce.send(events, { dispatcher, signal }, (event) => deliver(event, signal)))
    },
    open: () => use.open(),
    async healthy() {
      if (use.closed) return false
      // One question at a time: a client that has no connection keeps them all.
      flush ??= (async () => client.flush())()
        .then(
          () => true,
          () => false,
        )
        .finally(() => (flush = undefined))
      return withTimeout(flush, timeoutMs).catch(() => false)
    },
    close: () => use.close(),
  }
}

/** The last number of each subject, and where it stands. The one that was not needed longest is forgotten. */
class Ends {
  readonly #ends = new Map<string, { readonly seq: number; readonly at: number }>()

  of(subject: string): { readonly seq: number; readonly at: number } | undefined {
    return this.#ends.get(subject)
  }

  remember(subject: string, seq: number, at: number): void {
    this.#ends.delete(subject)
    this.#ends.set(subject, { seq, at })
    if (this.#ends.size <= REMEMBERED) return
    for (const oldest of this.#ends.keys()) {
      this.#ends.delete(oldest)
      break
    }
  }

  clear(): void {
    this.#ends.clear()
  }
}

/** Whether a subject's end is not where it was, nor behind that: then no place of the stream is what it was. */
function hasGoneBack(last: Stored | Delivery | undefined, known: { seq: number; at: number } | undefined): boolean {
  if (known === undefined) return false
  if (last === undefined) return true
  return isStored(last) && (last.at < known.at || (last.at === known.at && last.seq !== known.seq))
}

function isStored(found: Stored | Delivery): found is Stored {
  return typeof found === 'object' && 'at' in found
}

/**
 * The subject of an event stream, as the sink makes it: for its readers.
 *
 * @example
 * const subject = natsSubject({ topic: 'trades', key: 'growth' }) // trades.growth
 */
export function natsSubject(stream: EventStream, template: string = DEFAULT_SUBJECT): string {
  return subjects(template)(stream)
}

function subjects(template: string = DEFAULT_SUBJECT): (stream: EventStream) => string {
  const subjectOf = nameTemplate('subject', template, encodeToken, /\./)
  checkName('subject', subjectOf({ topic: 'topic', key: 'key' }), /^(?!\$JS\.)[^\s*>.]+(?:\.[^\s*>.]+)*$/)
  return subjectOf
}

/** A dot would make two tokens of one, and a star a wildcard. */
function encodeToken(text: string): string {
  return encodeURIComponent(text).replaceAll('.', '%2E').replaceAll('*', '%2A')
}

function streams(option: NatsSinkOptions['stream'] | undefined): (stream: EventStream) => string {
  const check = (name: unknown): string => checkName('stream', name, /^[^\s.*>/\\]+$/)
  if (typeof option === 'function') return (stream) => check(option(stream))
  const name = check(option)
  return () => name
}

function checkName(option: string, name: unknown, allowed: RegExp): string {
  if (typeof name === 'string' && allowed.test(name)) return name
  throw new InvalidOptionError(`${option} is ${JSON.stringify(name) ?? String(name)}.`, {
    advice: 'Pass a name without blanks and wildcards, as NATS has them.',
  })
}

const again = ({ topic, key }: OutboxEvent): string => `(topic ${topic}, key ${key}), then retry the stream`

function empty(event: OutboxEvent, subject: string, start: number | 'anywhere'): Delivery {
  return {
    refused: `The subject ${subject} is empty, and begins with #${start}, not with #${event.seq}. Was it purged, or did its messages expire? Send it again with outbox.replay(), or let it begin here with the sink's option start ${again(event)}.`,
  }
}

function gap(event: OutboxEvent, subject: string, last: number): Delivery {
  return {
    refused: `The subject ${subject} ends with #${last}: #${event.seq} would leave a gap. Messages that JetStream had confirmed were lost. Send them again with outbox.replay() from #${last + 1} on ${again(event)}.`,
  }
}

function diverged(event: OutboxEvent, subject: string, id: string | undefined): Delivery {
  return {
    refused: `The subject ${subject} had another event as #${event.seq}: its id is ${id}, not ${event.id}. The history there is not this database's: was it restored? Purge the subject and send it again with outbox.replay(), or let it begin here with the sink's option start ${again(event)}.`,
  }
}

function foreign(event: OutboxEvent, subject: string): Delivery {
  return {
    refused: `The subject ${subject} has a message that no Lockstep has sent, so #${event.seq} has no place. Give the sink subjects of its own with its option subject (topic ${event.topic}, key ${event.key}).`,
  }
}

function tooLarge({ topic, key, seq }: OutboxEvent, size: number, limit: string): Delivery {
  return {
    refused: `#${seq} of ${topic}/${key} has ${size} bytes with its headers, more than the ${limit}. Store what is large elsewhere and send a reference, or raise it there.`,
  }
}
