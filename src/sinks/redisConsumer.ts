import { setTimeout as sleep } from 'node:timers/promises'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import {
  BROKER_CONSUMER_OPTIONS,
  type BrokerConsumer,
  brokerConsumer,
  type BrokerConsumerOptions,
  type ConsumedEvents,
  type ConsumingLockstep,
  type EventHandler,
  type Intake,
  type ListHandler,
  type Source,
} from '../consumers/index.ts'
import { InvalidOptionError } from '../errors.ts'
import type { EventMap } from '../events/index.ts'
import { type Key, key } from '../locks/index.ts'
import { checkNumber } from '../outbox/index.ts'
import { readRedisEntry, redisStreamName } from './redisEntry.ts'
import type { IoRedisClient, NodeRedisClient, RedisClient } from './redisClient.ts'

/** What the consumer needs of a Lockstep: also `leader()`. */
export interface RedisConsumingLockstep<Client = unknown, Events extends object = EventMap> extends ConsumingLockstep<
  Client,
  Events
> {
  leader<T>(
    key: Key,
    options: { readonly ttlMs?: number; readonly signal?: AbortSignal },
    fn: (lease: { readonly signal: AbortSignal }) => Promise<T>,
  ): Promise<T | undefined>
}

/** What `redisConsumer()` takes. */
export interface RedisConsumerOptions<
  Client = unknown,
  Events extends object = EventMap,
  Consumed extends object = EventMap,
> extends BrokerConsumerOptions<Client, Events, Consumed> {
  readonly lockstep: RedisConsumingLockstep<Client, Events>
  /** A client of ioredis or node-redis, connected by the caller. The consumer never closes it. */
  readonly client: RedisClient
  readonly topics: readonly string[]
  /** The names of the Redis streams, as the sink has them. Default `lockstep:{topic}:{key}`. */
  readonly stream?: string
  /** How often it looks for new events while there are none. Default 50. */
  readonly pollMs?: number
  /** How often it looks for new streams. Default 1,000. */
  readonly discoverMs?: number
  /** How long the streams stay with a dead process. Default 10,000. */
  readonly ttlMs?: number
}

const REDIS_CONSUMER_OPTIONS: OptionNames<RedisConsumerOptions> = {
  ...BROKER_CONSUMER_OPTIONS,
  client: true,
  topics: true,
  stream: true,
  pollMs: true,
  discoverMs: true,
  ttlMs: true,
}

/** How many streams are read at once. */
const STREAMS_AT_ONCE = 200
/** The maximum number of messages of one stream in memory: a stream that waits would fill it. */
const MOST_OF_STREAM = 200
const SCAN_COUNT = 1000
const DAY_MS = 24 * 60 * 60 * 1000

/**
 * Consumes what `redisSink()` has written: each event exactly once, in order per key, keys in parallel. It needs no consumer group: the number
 * of an event is the id of its entry, and the inbox knows the last one. One process of a name reads at a time; another takes over when it is
 * gone.
 *
 * @example
 * const consumer = redisConsumer('billing', { lockstep, client: new Redis(), topics: ['orders'] }, async (event, tx) => {
 *   await tx.query('INSERT INTO invoices (order_id, seq) VALUES ($1, $2)', [event.key, event.seq])
 * })
 * await consumer.run({ signal })
 */
export function redisConsumer<Client = unknown, Events extends object = EventMap, Consumed extends object = EventMap>(
  name: string,
  options: RedisConsumerOptions<Client, Events, Consumed> & { readonly lists: true },
  handler: ListHandler<ConsumedEvents<Consumed>, Client, Events>,
): BrokerConsumer
export function redisConsumer<Client = unknown, Events extends object = EventMap, Consumed extends object = EventMap>(
  name: string,
  options: RedisConsumerOptions<Client, Events, Consumed>,
  handler: EventHandler<ConsumedEvents<Consumed>, Client, Events>,
): BrokerConsumer
export function redisConsumer(
  name: string,
  options: RedisConsumerOptions,
  handler: EventHandler | ListHandler,
): BrokerConsumer {
  checkOptions('redisConsumer()', options, REDIS_CONSUMER_OPTIONS)
  const { topics, client, stream, lockstep } = options
  if (!Array.isArray(topics) || topics.length === 0 || topics.some((topic) => typeof topic !== 'string')) {
    throw new InvalidOptionError('redisConsumer() was given no topics.', { advice: "Pass topics: ['orders']." })
  }
  const setting: Setting = {
    name,
    topics: topics as readonly string[],
    lockstep,
    ask: asker(client),
    atOnce: (client as Partial<IoRedisClient>).isCluster === true ? 1 : STREAMS_AT_ONCE,
    nameOf: (of) => redisStreamName(of, stream),
    pollMs: checkNumber('pollMs', options.pollMs ?? 50, 1, DAY_MS),
    discoverMs: checkNumber('discoverMs', options.discoverMs ?? 1000, 1, DAY_MS),
    ttlMs: checkNumber('ttlMs', options.ttlMs ?? 10_000, 500, DAY_MS),
  }
  setting.nameOf({ topic: 'topic', key: 'key' })
  return brokerConsumer('redisConsumer()', name, options, handler, () => new RedisSource(setting))
}

type Ask = (command: string, args: readonly string[]) => Promise<unknown>

interface Setting {
  readonly name: string
  readonly topics: readonly string[]
  readonly lockstep: RedisConsumingLockstep
  readonly ask: Ask
  readonly atOnce: number
  readonly nameOf: (stream: { readonly topic: string; readonly key: string }) => string
  readonly pollMs: number
  readonly discoverMs: number
  readonly ttlMs: number
}

/** Answers with bytes where the client can. */
function asker(client: RedisClient): Ask {
  const { call, callBuffer } = (client ?? {}) as Partial<IoRedisClient> & { callBuffer?: IoRedisClient['call'] }
  if (typeof callBuffer === 'function') return (command, args) => callBuffer.call(client, command, [...args])
  if (typeof call === 'function') return (command, args) => call.call(client, command, [...args])
  const { sendCommand } = (client ?? {}) as Partial<NodeRedisClient>
  if (typeof sendCommand === 'function') return (command, args) => sendCommand.call(client, [command, ...args])
  throw new InvalidOptionError('client is no client of Redis.', {
    advice: 'Pass a client of ioredis, or a connected one of node-redis.',
  })
}

/** A Redis stream, and the number that is read next. */
interface Known {
  readonly topic: string
  readonly key: string
  next: number
}

class RedisSource implements Source {
  readonly name = 'redis'
  readonly #setting: Setting

  constructor(setting: Setting) {
    this.#setting = setting
  }

  async read(intake: Intake, signal: AbortSignal): Promise<void> {
    const { lockstep, name, ttlMs } = this.#setting
    await lockstep.leader(key`Consumer:${name}`, { ttlMs, signal }, (lease) =>
      this.#readAll(intake, AbortSignal.any([signal, lease.signal])),
    )
  }

  async #readAll(intake: Intake, signal: AbortSignal): Promise<void> {
    // Where it begins is read again: another process may have gone on meanwhile.
    const known = new Map<string, Known>()
    let discoverAt = 0
    while (!signal.aborted) {
      if (performance.now() >= discoverAt) {
        await this.#discover(known)
        discoverAt = performance.now() + this.#setting.discoverMs
      }
      let found = 0
      const names = [...known.keys()]
      for (let at = 0; at < names.length && !signal.aborted;) {
        await intake.room()
        if (signal.aborted) return
        const some = names.slice(at, at + Math.max(1, Math.min(this.#setting.atOnce, intake.free)))
        at += some.length
        found += await this.#readSome(some, known, intake)
      }
      if (found === 0) await sleep(this.#setting.pollMs, undefined, { signal }).catch(() => undefined)
    }
  }

  async #readSome(names: readonly string[], known: ReadonlyMap<string, Known>, intake: Intake): Promise<number> {
    const asked = names.filter((name) => intake.countOf(known.get(name) as Known) < MOST_OF_STREAM)
    if (asked.length === 0) return 0
    const count = Math.max(1, Math.min(MOST_OF_STREAM, Math.floor(intake.free / asked.length)))
    const ids = asked.map((name) => `${(known.get(name)?.next ?? 1) - 1}-0`)
    const answer = await this.#setting.ask('XREAD', ['COUNT', String(count), 'STREAMS', ...asked, ...ids])
    let found = 0
    for (const [name, entries] of pairsOf(answer)) {
      const stream = known.get(textOf(name))
      if (stream === undefined) continue
      for (const [id, fields] of entries as [unknown, (string | Uint8Array)[]][]) {
        found++
        const bytes = fields.reduce((sum, field) => sum + field.length, 0)
        try {
          const event = readRedisEntry(fields)
          stream.next = event.seq + 1
          // The position in the inbox is the acknowledgment.
          intake.take({ event, bytes, done: () => undefined })
        } catch (error) {
          stream.next = Number(textOf(id).split('-')[0]) + 1
          intake.unreadable(error, () => undefined)
        }
      }
    }
    return found
  }

  /** Streams of its topics that it does not know, and where it is in them. */
  async #discover(known: Map<string, Known>): Promise<void> {
    const { topics, nameOf, ask, lockstep, name: consumer } = this.#setting
    const found: Known[] = []
    for (const topic of topics) {
      const [before = '', after = ''] = nameOf({ topic, key: KEY_MARK }).split(KEY_MARK)
      let cursor = '0'
      do {
        const pattern = `${before.replaceAll('*', String.raw`\*`)}*${after.replaceAll('*', String.raw`\*`)}`
        const answer = await ask('SCAN', [cursor, 'MATCH', pattern, 'COUNT', String(SCAN_COUNT), 'TYPE', 'stream'])
        const [next, names] = answer as [unknown, unknown[]]
        cursor = textOf(next)
        for (const each of names) {
          const name = textOf(each)
          const named = decoded(name.slice(before.length, name.length - after.length))
          // Another program's streams may have names that look like ours.
          if (known.has(name) || named === undefined || nameOf({ topic, key: named }) !== name) continue
          const stream = { topic, key: named, next: 1 }
          known.set(name, stream)
          found.push(stream)
        }
      } while (cursor !== '0')
    }
    if (found.length === 0) return
    const inbox = lockstep.inbox.consumer(consumer)
    await lockstep.transaction({}, async (tx) => {
      for (const stream of found) stream.next = ((await inbox.position(tx, stream))?.seq ?? 0) + 1
    })
  }
}

const KEY_MARK = 'KEYMARK'

/** Of RESP2 a list of pairs, of RESP3 a map. */
function pairsOf(answer: unknown): [unknown, unknown][] {
  if (answer === null || answer === undefined) return []
  if (answer instanceof Map) return [...answer]
  return Array.isArray(answer) ? (answer as [unknown, unknown][]) : Object.entries(answer)
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text)
  } catch {
    return undefined
  }
}

function textOf(value: unknown): string {
  return value instanceof Uint8Array ? Buffer.from(value).toString() : String(value)
}
