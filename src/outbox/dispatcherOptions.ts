import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import { checkNumber } from './checkNumber.ts'
import { type Sink, type SinkFunction, sinkOf } from './sink.ts'
import { checkTopics } from './topicList.ts'

/** What is done with an event that was refused too often. */
export type GiveUp =
  /** Its stream waits for an operator. */
  | 'block'
  /** A tombstone replaces it, and the stream continues. */
  | 'skip'
  /** The same, and the event is kept in the table of the dead. */
  | 'deadLetter'

/** How long a stream pauses after an event was not taken. */
export interface BackoffOptions {
  readonly first?: number
  readonly longest?: number
}

const BACKOFF_OPTIONS: OptionNames<BackoffOptions> = { first: true, longest: true }

/** What `outbox.dispatcher()` takes. */
export interface DispatcherOptions {
  /** Where events go: a sink, or a function that receives batches. */
  readonly sink: Sink | SinkFunction
  /** Each dispatcher name receives every event. Default `default`. */
  readonly name?: string
  /**
   * The topics that it delivers. A star at the end matches any rest: `['trades', 'orders.*']`. All processes of a name have one list. A
   * process with another list waits until no process with the old list runs, and then continues from there. Default: all topics.
   */
  readonly topics?: readonly string[]
  /**
   * The number of parts into which the streams are divided: 1, 2, 4, … 512. It applies when the name is first used. `outbox.split()`
   * increases it later. Default 8.
   */
  readonly shards?: number
  /** The maximum number of events of a shard in one call of the sink. Default 1,000. */
  readonly batch?: number
  /**
   * How long a shard stays with a dead process. Default 10,000, shorter than for a lease: taking a shard over too early only sends events
   * twice, and the inbox recognizes them. Taking it over late delays every stream of the shard.
   */
  readonly ttlMs?: number
  /** How often an event can be refused before it is given up. Default 5. */
  readonly attempts?: number
  /** The first pause before another attempt, doubled each time, and the longest. Default 200 and 60,000. */
  readonly backoffMs?: BackoffOptions
  /** What happens to an event that is given up: for all topics, or by topic. Default `block`. */
  readonly giveUp?: GiveUp | Readonly<Record<string, GiveUp>>
  /**
   * How long a stream can take in one batch, if the sink sends each stream separately (webhooks, `perEvent()`). A stream that takes longer
   * is parked as slow and continues separately, so that the others do not wait for it. `false`: the batch waits. Default 1,000.
   */
  readonly slowAfterMs?: number | false
  /**
   * How long events stay after delivery. The largest value of all registered dispatchers applies. `false`: forever, until you call
   * `outbox.retain()`. Default 7 days.
   */
  readonly retainMs?: number | false
  /**
   * After this time without an event it sends no queries at all, not even its look once a minute, until a writer rings or enqueues in the same
   * process: for databases that are suspended when they are idle. It needs a direct connection, on which it listens. Default `false`.
   */
  readonly sleepAfterMs?: number | false
  /** A name that others see. Default: the host name and the process id. */
  readonly holder?: string
}

const DISPATCHER_OPTIONS: OptionNames<DispatcherOptions> = {
  sink: true,
  name: true,
  topics: true,
  shards: true,
  batch: true,
  ttlMs: true,
  attempts: true,
  backoffMs: true,
  giveUp: true,
  slowAfterMs: true,
  retainMs: true,
  sleepAfterMs: true,
  holder: true,
}

/** The checked options. */
export interface DispatcherPlan {
  readonly sink: Sink
  readonly name: string
  /** In order; null: all. */
  readonly topics: readonly string[] | null
  readonly shards: number
  readonly shardsStated: boolean
  readonly batch: number
  readonly ttlMs: number
  readonly attempts: number
  readonly firstBackoffMs: number
  readonly longestBackoffMs: number
  readonly giveUp: (topic: string) => GiveUp
  readonly slowAfterMs: number | false
  readonly retainMs: number | false
  readonly sleepAfterMs: number | false
  readonly holder: string | undefined
}

const GIVE_UP: readonly GiveUp[] = ['block', 'skip', 'deadLetter']
const DAY_MS = 24 * 60 * 60 * 1000
export const SHARDS: readonly number[] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]

export function planDispatcher(options: DispatcherOptions): DispatcherPlan {
  checkOptions('dispatcher()', options, DISPATCHER_OPTIONS)
  if (options.backoffMs !== undefined) checkOptions('backoffMs', options.backoffMs, BACKOFF_OPTIONS)
  if (options.sink === undefined) {
    throw new InvalidOptionError('dispatcher() was given no sink.', {
      advice: 'Call dispatcher({ sink: async (events) => … }).',
    })
  }
  const shards = options.shards ?? 8
  if (!SHARDS.includes(shards)) {
    throw new InvalidOptionError(`shards is ${String(options.shards)}.`, { advice: `Use one of ${SHARDS.join(', ')}.` })
  }
  return {
    sink: checkSink(options.sink),
    name: checkName(options.name ?? 'default'),
    topics: checkTopics(options.topics),
    shards,
    shardsStated: options.shards !== undefined,
    batch: checkNumber('batch', options.batch ?? 1000, 1, 10_000),
    ttlMs: checkNumber('ttlMs', options.ttlMs ?? 10_000, 500, DAY_MS),
    attempts: checkNumber('attempts', options.attempts ?? 5, 1, 1_000_000),
    firstBackoffMs: checkNumber('backoffMs.first', options.backoffMs?.first ?? 200, 1, DAY_MS),
    longestBackoffMs: checkNumber('backoffMs.longest', options.backoffMs?.longest ?? 60_000, 1, DAY_MS),
    giveUp: checkGiveUp(options.giveUp ?? 'block'),
    slowAfterMs:
      options.slowAfterMs === false ? false : checkNumber('slowAfterMs', options.slowAfterMs ?? 1000, 10, DAY_MS),
    retainMs:
      options.retainMs === false ? false : checkNumber('retainMs', options.retainMs ?? 7 * DAY_MS, 1, 3650 * DAY_MS),
    sleepAfterMs:
      (options.sleepAfterMs ?? false) === false
        ? false
        : checkNumber('sleepAfterMs', options.sleepAfterMs, 1000, DAY_MS),
    holder: options.holder,
  }
}

function checkSink(given: unknown): Sink {
  const usable =
    typeof given === 'function' || (typeof given === 'object' && given !== null && 'send' in given && 'name' in given)
  if (usable) return sinkOf(given as Sink | SinkFunction)
  throw new InvalidOptionError('`sink` is neither a sink nor a function.', {
    advice: 'Pass a function that gets batches of events, perEvent(…), or one of the sinks of the package.',
  })
}

/** It becomes part of keys and of broker ids. */
function checkName(name: unknown): string {
  if (typeof name === 'string' && /^[A-Za-z0-9_.-]{1,60}$/.test(name)) return name
  throw new InvalidOptionError(`The name of a dispatcher is ${JSON.stringify(name)}.`, {
    advice: 'Use up to 60 letters, digits, points, dashes and underscores.',
  })
}

function checkGiveUp(given: GiveUp | Readonly<Record<string, GiveUp>>): (topic: string) => GiveUp {
  const all = typeof given === 'string' ? [given] : Object.values(given ?? {})
  if (all.length === 0 || all.some((each) => !GIVE_UP.includes(each))) {
    throw new InvalidOptionError(`giveUp is ${JSON.stringify(given)}.`, {
      advice: "Use 'block', 'skip' or 'deadLetter', or an object of topics: { trades: 'block', mails: 'deadLetter' }.",
    })
  }
  return typeof given === 'string' ? () => given : (topic) => given[topic] ?? 'block'
}
