import { checkOptions, type OptionNames } from '../checkOptions.ts'
import type { PositionedConsumer } from '../inbox/index.ts'
import type { DispatcherStatus, OutboxStatus, ParkedOptions, ParkedStream, ShardStatus } from '../outbox/index.ts'

/** What `consumers.list()` takes. */
export interface ListConsumersOptions {
  /** How many waiting streams are listed for each consumer, those that have waited longest. Default 10. */
  readonly waiting?: number
}

const LIST_OPTIONS: OptionNames<ListConsumersOptions> = { waiting: true }

/** A consumer, as operators see it. */
export interface ConsumerStatus {
  readonly name: string
  /** Whether the outbox of this database delivers to it. Otherwise its events come from a broker, whose consumer knows the lag. */
  readonly dispatched: boolean
  /** Its topics; undefined: all, or not known here. */
  readonly topics: readonly string[] | undefined
  /** In how many streams it has a position, counted up to 10,000. None: it has handled nothing yet, or its events go to a sink. */
  readonly streams: number
  /** Shards without an owner: no process runs them. */
  readonly ownerless: number
  /** Events that were committed and not delivered to it, without those of streams that wait. */
  readonly lagEvents: number
  readonly lagEstimated: boolean
  /** The age of the oldest of them. */
  readonly lagMs: number
  /** How many streams wait. */
  readonly parkedStreams: number
  /** Those that wait longest, with the reason: retry or skip them with `outbox.retry()` and `outbox.skip()`. */
  readonly waiting: readonly ParkedStream[]
}

/** Where the list is made from. */
interface ConsumerSources {
  readonly outbox: { status(): Promise<OutboxStatus>; parked(options: ParkedOptions): Promise<ParkedStream[]> }
  readonly inbox: { consumers(): Promise<PositionedConsumer[]> }
}

/** The consumers of a database. */
export class Consumers {
  readonly #sources: ConsumerSources

  /** @internal */
  constructor(sources: ConsumerSources) {
    this.#sources = sources
  }

  /**
   * Everything that receives events, by name: dispatchers of this outbox, and consumers that have positions in this inbox. A consumer of
   * `lockstep.consumer()` is both.
   *
   * @example
   * const failing = (await lockstep.consumers.list()).filter(({ parkedStreams }) => parkedStreams > 0)
   */
  async list(options: ListConsumersOptions = {}): Promise<ConsumerStatus[]> {
    checkOptions('consumers.list()', options, LIST_OPTIONS)
    const { waiting: most = 10 } = options
    const { outbox, inbox } = this.#sources
    const [{ dispatchers, shards }, positioned] = [await outbox.status(), await inbox.consumers()]
    const streams = new Map(positioned.map((each) => [each.name, each.streams]))
    const known = new Map(dispatchers.map((each) => [each.name, each]))
    const names = [...new Set([...known.keys(), ...streams.keys()])].toSorted((one, other) => (one < other ? -1 : 1))
    const all: ConsumerStatus[] = []
    for (const name of names) {
      const of = shards.filter(({ dispatcher }) => dispatcher === name)
      const parked = of.reduce((sum, { parkedStreams }) => sum + parkedStreams, 0)
      const waiting = parked > 0 && most > 0 ? await outbox.parked({ dispatcher: name, limit: most }) : []
      all.push(statusOf(name, known.get(name), of, { streams: streams.get(name) ?? 0, parked, waiting }))
    }
    return all
  }
}

function statusOf(
  name: string,
  dispatcher: DispatcherStatus | undefined,
  shards: readonly ShardStatus[],
  { streams, parked, waiting }: { streams: number; parked: number; waiting: readonly ParkedStream[] },
): ConsumerStatus {
  return {
    name,
    dispatched: dispatcher !== undefined,
    topics: dispatcher?.topics,
    streams,
    ownerless: shards.filter(({ owner }) => owner === undefined).length,
    lagEvents: shards.reduce((sum, { lagEvents }) => sum + lagEvents, 0),
    lagEstimated: shards.some(({ lagEstimated }) => lagEstimated),
    lagMs: Math.max(0, ...shards.map(({ lagMs }) => lagMs)),
    parkedStreams: parked,
    waiting,
  }
}
