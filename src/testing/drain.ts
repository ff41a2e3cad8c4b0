import { setTimeout as sleep } from 'node:timers/promises'
import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { DrainTimeoutError, type Outbox, type OutboxEvent, type SinkFunction } from '../index.ts'

const DEFAULT_NAME = 'drain'
const DEFAULT_TIMEOUT_MS = 10_000
const LOOK_EVERY_MS = 5
/** Longer than any pause of a busy machine: a shard that changes hands delivers twice. */
const TTL_MS = 30_000

/** What `drain()` takes. */
export interface DrainOptions {
  /** Gets the events, as the sink of a dispatcher does. Its error is the error of `drain()`. Default: it takes everything. */
  readonly sink?: SinkFunction
  /** The name of the dispatcher, whose cursor says what was delivered before. Default `drain`, which nothing else uses. */
  readonly dispatcher?: string
  /** As of a dispatcher: the topics that it delivers. Default: all. */
  readonly topics?: readonly string[]
  /** Default 10,000. */
  readonly timeoutMs?: number
}

const DRAIN_OPTIONS: OptionNames<DrainOptions> = { sink: true, dispatcher: true, topics: true, timeoutMs: true }

/** The part of a Lockstep that delivers: of any event types and any driver. */
export interface Draining {
  readonly outbox: Pick<Outbox, 'dispatcher' | 'status'>
}

/**
 * Delivers what is committed to the outbox, and returns it in the order of delivery. A real dispatcher runs, with one shard, until nothing is
 * left: the next call returns what was committed since. Events that the sink refuses are not among them; their streams are parked.
 *
 * @example
 * await placeOrder(id)
 * const events = await drain(lockstep)
 * assert.deepEqual(events.map(({ topic, key }) => `${topic}/${key}`), ['orders/42'])
 */
export async function drain(lockstep: Draining, options: DrainOptions = {}): Promise<OutboxEvent[]> {
  checkOptions('drain()', options, DRAIN_OPTIONS)
  const { sink, dispatcher: name = DEFAULT_NAME, timeoutMs = DEFAULT_TIMEOUT_MS } = options
  const delivered: OutboxEvent[] = []
  const stopping = new AbortController()
  let failure: { readonly error: unknown } | undefined
  const running = lockstep.outbox
    .dispatcher({
      name,
      ...(options.dispatcher === undefined && { shards: 1 }),
      ...(options.topics !== undefined && { topics: options.topics }),
      ttlMs: TTL_MS,
      retainMs: false,
      async sink(events, context) {
        try {
          const answers = (await sink?.(events, context)) ?? events.map(() => 'sent' as const)
          delivered.push(...events.filter((_, place) => answers[place] === 'sent'))
          return answers
        } catch (error) {
          failure ??= { error }
          stopping.abort()
          throw error
        }
      },
    })
    .run({ signal: stopping.signal })
  try {
    await Promise.race([running, empty(lockstep, name, timeoutMs, stopping.signal)])
  } finally {
    stopping.abort()
    await running
  }
  if (failure !== undefined) throw failure.error
  return delivered
}

/** Resolves when the dispatcher has delivered everything that is not parked. */
async function empty({ outbox }: Draining, name: string, timeoutMs: number, stopped: AbortSignal): Promise<void> {
  const until = performance.now() + timeoutMs
  while (!stopped.aborted) {
    const shards = (await outbox.status()).shards.filter(({ dispatcher }) => dispatcher === name)
    const left = shards.reduce((sum, { lagEvents }) => sum + lagEvents, 0)
    if (shards.length > 0 && left === 0 && shards.every(({ lagEstimated }) => !lagEstimated)) return
    if (performance.now() > until) {
      throw new DrainTimeoutError(`drain() has not delivered ${left} events within ${timeoutMs} ms.`, {
        advice: 'Look at the answers of the sink: what it does not take is sent again. Or raise timeoutMs.',
      })
    }
    await sleep(LOOK_EVERY_MS)
  }
}
