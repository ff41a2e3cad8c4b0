import { InvalidOptionError } from '../errors.ts'
import { checkContracts, type EventContracts, type EventToEnqueue } from '../events/index.ts'
import type { Statement } from '../postgres/index.ts'
import type { PartHooks, PartSetup, Planner } from '../transactions/index.ts'
import { streamsPlanner } from './declaredStreams.ts'
import { DEFAULT_MAX_BYTES, type EventHeaders, type PreparedEvent, prepareEvent } from './event.ts'
import { flushEvents, type StreamNumbers } from './flush.ts'
import { ALL_GROUPS, type Groups, groupsOf } from './groups.ts'
import { Ringer } from './ringer.ts'
import type { RingTopics } from './ringTopics.ts'

/** Hears of commits in this process: which groups of buckets, and which topics. */
export type CommitListener = (groups: Groups, topics: RingTopics) => void

/** What the outbox reads of the options of a Lockstep. */
export interface EnqueuerSettings {
  readonly maxEventBytes?: number
  readonly eventHeaders?: EventHeaders
  readonly events?: EventContracts
}

/** How the events of one Lockstep are written, and who hears of it. */
export class OutboxEnqueuer implements PartHooks {
  readonly planner: Planner
  readonly #schema: string
  readonly #maxBytes: number
  readonly #eventHeaders: EventHeaders | undefined
  readonly #contracts: EventContracts | undefined
  readonly #name: string
  readonly #listeners = new Set<CommitListener>()
  readonly #ringer: Ringer

  constructor(
    setup: PartSetup,
    { maxEventBytes: maxBytes = DEFAULT_MAX_BYTES, eventHeaders, events }: EnqueuerSettings,
  ) {
    this.planner = streamsPlanner(setup.quotedSchema)
    this.#schema = setup.quotedSchema
    this.#name = setup.schema
    this.#ringer = new Ringer(setup)
    this.#maxBytes = maxBytes
    this.#eventHeaders = eventHeaders
    this.#contracts = checkContracts('new Lockstep()', events)
    if (!Number.isInteger(maxBytes) || maxBytes < 1) {
      throw new InvalidOptionError(`maxEventBytes is ${String(maxBytes)}.`, { advice: 'Use a whole number of bytes.' })
    }
  }

  prepare(event: EventToEnqueue): PreparedEvent {
    return prepareEvent(event, this.#maxBytes, this.#eventHeaders, this.#contracts)
  }

  /** The statements that write events, to be sent right before COMMIT. */
  flush(events: readonly PreparedEvent[], numbers: StreamNumbers | undefined): Statement[] {
    return flushEvents(this.#schema, events, numbers)
  }

  /** One event of a transaction that is the caller's: there may be any number of others. */
  append(event: PreparedEvent): Statement[] {
    return flushEvents(this.#schema, [event], undefined, null)
  }

  /** Wakes dispatchers: those of this process directly, others by the bell. */
  committed(events: readonly PreparedEvent[]): void {
    this.#ringer.ring(events)
    if (this.#listeners.size === 0) return
    const many = events.length > HASHED_AT_ONCE
    const groups = many ? ALL_GROUPS : groupsOf(this.#name, events)
    const topics = many ? undefined : new Set(events.map(({ topic }) => topic))
    for (const listener of this.#listeners) listener(groups, topics)
  }

  /** What was committed is rung for, also right before close(). */
  settled(): Promise<void> {
    return this.#ringer.settled()
  }

  onCommitted(listener: CommitListener): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** As whom this process rings. */
  get ringsAs(): string {
    return this.#ringer.id
  }
}

/** `where` is how the caller calls it. */
export function checkEventList(where: string, events: unknown): void {
  if (Array.isArray(events)) return
  throw new InvalidOptionError(`${where} was given no list.`, { advice: 'Pass a list of { topic, key, payload }.' })
}

/** Of more events than that all groups are woken. */
const HASHED_AT_ONCE = 100
