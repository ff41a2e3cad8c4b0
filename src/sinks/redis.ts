import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import { type BatchContext, byStream, type Delivery, type OutboxEvent, type Sink } from '../outbox/index.ts'
import { LONGEST_TIMER_MS } from '../postgres/index.ts'
import { withTimeout } from './withTimeout.ts'
import { BINDINGS, type CloudEventsOptions, headersBy, type HeadersOf } from './cloudEvents.ts'
import { notPlaced, refusalOf } from './reasons.ts'
import { BODY, deliveryOf, readVerdict, SCRIPT, SHA, type Verdict } from './redisAppend.ts'
import { commandSender, type RedisClient } from './redisClient.ts'
import { SinkUse } from './sinkUse.ts'
import { startOf, type StreamStartOption } from '../consumers/index.ts'
import { redisStreamNames } from './redisEntry.ts'

export type { CloudEventsOptions } from './cloudEvents.ts'
export { readRedisEntry, redisStreamName } from './redisEntry.ts'
export { redisConsumer, type RedisConsumerOptions, type RedisConsumingLockstep } from './redisConsumer.ts'
export type { IoRedisClient, IoRedisPipeline, NodeRedisClient, RedisClient } from './redisClient.ts'
export type { EventStream, StreamStart, StreamStartOption } from '../consumers/index.ts'

export interface RedisSinkOptions {
  readonly client: RedisClient
  /** The names of the Redis streams. Topic and key are percent-encoded in it. Default `lockstep:{topic}:{key}`. */
  readonly stream?: string
  /** The number with which a stream can begin if Redis has no entry of it. Default 1. */
  readonly start?: StreamStartOption
  /** About how many entries are kept in each stream (`MAXLEN ~`). Default: all. */
  readonly maxLength?: number
  /** Larger events are refused. Must not be above the server's `proto-max-bulk-len`. Default 16 MiB. */
  readonly maxEventBytes?: number
  /** After this time without an answer, the outcome of an event is unknown. Default 10 s. */
  readonly timeoutMs?: number
  /** Adds the attributes of CloudEvents 1.0 as fields, `ce_id` and so on. Default: none. */
  readonly cloudEvents?: CloudEventsOptions
}

const REDIS_OPTIONS: OptionNames<RedisSinkOptions> = {
  client: true,
  stream: true,
  start: true,
  maxLength: true,
  maxEventBytes: true,
  timeoutMs: true,
  cloudEvents: true,
}

const DEFAULT_MAX_EVENT_BYTES = 16 * 1024 * 1024
const DEFAULT_TIMEOUT_MS = 10_000
/** A script holds all of Redis up, and what is sent at once stands in Redis's memory: a longer part of a stream goes in several. */
const EVENTS_PER_CALL = 500
const BYTES_PER_CALL = 1024 * 1024
/** What is collected before it is written: large enough to be cheap, small enough to keep the server busy meanwhile. */
const BYTES_AT_ONCE = 256 * 1024
/** Lua hands over about 8,000 arguments at once. */
const MAX_FIELDS = 3_000

/** No event has this number. */
const NOWHERE = '0'

const EARLIER: Delivery = { unknown: 'an earlier event of its stream was not sent' }
const CLOSED: Delivery = { unknown: 'the sink is closed' }
const LOST: Delivery = { unknown: 'the shard was lost before it was sent' }

/**
 * Events into Redis Streams: one for each stream of events, and the number of an event is the id of its entry, `seq-0`. A script
 * appends an event only right behind the one before it: what comes again is found by its id and counts as sent, what comes too late
 * finds its place taken, and what would leave a gap is refused.
 *
 * A client may send a command again by itself after a reconnect, or long after the sink has given it up. That is harmless: whenever the
 * script runs, it appends an event to the place that is the event's own, or not at all, and the next sender of the event finds it there.
 *
 * @example
 * const client = new Redis('redis://127.0.0.1:6379')
 * await lockstep.outbox.dispatcher({ sink: redisSink({ client }) }).run({ signal })
 */
export function redisSink(options: RedisSinkOptions): Sink {
  checkOptions('redisSink()', options, REDIS_OPTIONS)
  const { client, maxLength, maxEventBytes = DEFAULT_MAX_EVENT_BYTES, timeoutMs = DEFAULT_TIMEOUT_MS } = options
  const askAll = commandSender(client)
  const nameOf = redisStreamNames(options.stream)
  const startAt = startOf(options.start)
  if (maxLength !== undefined) checkCount('maxLength', maxLength)
  checkCount('maxEventBytes', maxEventBytes)
  checkCount('timeoutMs', timeoutMs, LONGEST_TIMER_MS)
  const headersOf = headersBy('redisSink()', options.cloudEvents, BINDINGS.redis)
  const limit = maxLength === undefined ? '' : String(maxLength)
  const use = new SinkUse()
  let ping: Promise<boolean> | undefined

  function planned(places: readonly number[], events: readonly OutboxEvent[]): Part {
    const stream = events[places[0] as number] as OutboxEvent
    const part: Part = { name: '', start: '', places, calls: [], stop: undefined }
    try {
      part.name = nameOf(stream)
      part.start = String(startAt(stream))
    } catch (error) {
      part.stop = notPlaced(stream, error)
      return part
    }
    let call: Call | undefined
    for (const [index, place] of places.entries()) {
      const event = events[place] as OutboxEvent
      let entry: Entry
      try {
        entry = entryOf(event, headersOf)
      } catch (error) {
        part.stop = refusalOf(error)
        break
      }
      if (entry.bytes > maxEventBytes || entry.fields.length > 2 * MAX_FIELDS) {
        part.stop = tooLarge(event, entry, maxEventBytes)
        break
      }
      if (call === undefined || call.count >= EVENTS_PER_CALL || call.bytes + entry.bytes > BYTES_PER_CALL) {
        // On several connections a later call may overtake the first: it must not be the one that begins the stream.
        const start = index === 0 ? part.start : NOWHERE
        call = { from: index, count: 0, bytes: 0, args: ['1', part.name, start, limit], outcome: undefined }
        part.calls.push(call)
      }
      call.count++
      call.bytes += entry.bytes
      call.args.push(String(event.seq), event.id, String(entry.fields.length), ...entry.fields)
    }
    return part
  }

  /** All within one round trip. Comes back when everything is answered, or after `timeoutMs`. */
  function exchange(events: readonly OutboxEvent[], signal: AbortSignal): Promise<Part[]> {
    return new Promise((resolve) => {
      const parts: Part[] = []
      let left = 1
      let over = false
      const end = (): void => {
        over = true
        clearTimeout(timer)
        resolve(parts)
      }
      const timer = setTimeout(end, timeoutMs)
      const done = (): void => {
        if (--left === 0 && !over) end()
      }
      const begin = (calls: readonly Call[], command: 'evalsha' | 'eval'): void => {
        left += calls.length
        const script = command === 'eval' ? SCRIPT : SHA
        const all = calls.map(({ args }) => [script, ...args])
        askAll(command, all, (index, answer) => {
          // What comes after the end is ignored, and must not begin anything either.
          if (over) return
          const call = calls[index] as Call
          const unheardOf = answer instanceof Error && command === 'evalsha' && /^NOSCRIPT\b/.test(answer.message)
          if (unheardOf && !signal.aborted) begin([call], 'eval')
          else
            call.outcome =
              answer instanceof Error ? answer : (readVerdict(answer) ?? new Error(`it said ${String(answer)}`))
          done()
        })
      }
      // Redis is at work on the first streams while the next are still being put into words.
      let waiting: Call[] = []
      let bytes = 0
      for (const places of byStream(events).values()) {
        const part = planned(places, events)
        parts.push(part)
        for (const call of part.calls) {
          waiting.push(call)
          bytes += call.bytes
        }
        if (bytes < BYTES_AT_ONCE) continue
        begin(waiting, 'evalsha')
        waiting = []
        bytes = 0
      }
      if (waiting.length > 0) begin(waiting, 'evalsha')
      done()
    })
  }

  async function send(events: readonly OutboxEvent[], { signal }: BatchContext): Promise<Delivery[]> {
    if (use.closed) return events.map(() => CLOSED)
    if (signal.aborted) return events.map(() => LOST)
    const parts = await use.track(exchange(events, signal))
    const answers: Delivery[] = events.map(() => EARLIER)
    for (const part of parts) read(part, events, answers, timeoutMs)
    return answers
  }

  return {
    name: 'redis',
    enforcesFences: true,
    send,
    open: () => use.open(),
    async healthy() {
      if (use.closed) return false
      // One question at a time: a client that has no connection keeps them all.
      ping ??= new Promise((resolve) => {
        askAll('ping', [[]], (_, answer) => {
          ping = undefined
          resolve(String(answer) === 'PONG')
        })
      })
      return withTimeout(ping, timeoutMs).catch(() => false)
    },
    close: () => use.close(),
  }
}

/** The events of one stream of a batch. */
interface Part {
  name: string
  start: string
  readonly places: readonly number[]
  readonly calls: Call[]
  /** What stopped it already here, behind its last call. */
  stop: Delivery | undefined
}

/** One run of the script. */
interface Call {
  /** The index of its first event among the part's places. */
  readonly from: number
  count: number
  bytes: number
  readonly args: (string | Buffer)[]
  outcome: Verdict | Error | undefined
}

function read(part: Part, events: readonly OutboxEvent[], answers: Delivery[], timeoutMs: number): void {
  const { places, calls, name } = part
  for (const { from, count, outcome } of calls) {
    const sent = outcome === undefined || outcome instanceof Error ? 0 : Math.min(outcome.sent, count)
    for (let index = from; index < from + sent; index++) answers[places[index] as number] = 'sent'
    if (sent === count) continue
    const place = places[from + sent] as number
    if (outcome === undefined) answers[place] = { unknown: `Redis did not answer within ${timeoutMs} ms` }
    else if (outcome instanceof Error) answers[place] = { unknown: `Redis: ${outcome.message}`, cause: outcome }
    else {
      const stop = outcome.stop ?? { kind: 'error', detail: 'the script stopped without a reason' }
      const overtook = from > 0 && sent === 0 && (stop.kind === 'gap' || stop.kind === 'empty')
      if (overtook) answers[place] = { unknown: 'it overtook an earlier event of its stream' }
      else answers[place] = deliveryOf(stop, events[place] as OutboxEvent, name, part.start)
    }
    return
  }
  const next = calls.reduce((total, { count }) => total + count, 0)
  if (part.stop !== undefined) answers[places[next] as number] = part.stop
}

interface Entry {
  readonly fields: (string | Buffer)[]
  readonly bytes: number
}

function entryOf(event: OutboxEvent, headersOf: HeadersOf): Entry {
  const headers = headersOf(event)
  const fields: (string | Buffer)[] = []
  const { body } = event
  let bytes = body.length
  for (const name in headers) {
    const value = headers[name] as string
    bytes += name.length + value.length
    fields.push(name, value)
  }
  fields.push(BODY, event.contentType === 'application/json' ? body.toString() : body)
  return { fields, bytes }
}

/** Half a character has no encoding; all else comes from the caller's `start`. */
function tooLarge({ topic, key, seq }: OutboxEvent, { bytes, fields }: Entry, maxEventBytes: number): Delivery {
  const advice = 'Store what is large elsewhere and send a reference'
  return bytes > maxEventBytes
    ? {
        refused: `#${seq} of ${topic}/${key} has ${bytes} bytes, more than maxEventBytes (${maxEventBytes}). ${advice}, or raise the sink's maxEventBytes.`,
      }
    : { refused: `#${seq} of ${topic}/${key} has ${fields.length / 2} fields, more than ${MAX_FIELDS}. ${advice}.` }
}

function checkCount(name: string, value: number, most = Number.MAX_SAFE_INTEGER): void {
  if (Number.isSafeInteger(value) && value >= 1 && value <= most) return
  throw new InvalidOptionError(`${name} is ${String(value)}.`, { advice: `Pass a whole number from 1 to ${most}.` })
}
