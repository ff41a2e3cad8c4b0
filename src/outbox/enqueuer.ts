import { InvalidOptionError } from '../errors.ts'
import type { EventToEnqueue } from '../events/index.ts'
import type { Statement } from '../postgres/index.ts'
import type { PartHooks, PartSetup, Planner } from '../transactions/index.ts'
import { streamsPlanner } from './declaredStreams.ts'
import { DEFAULT_MAX_BYTES, type EventHeaders, type PreparedEvent, prepareEvent } from './event.ts'
import { flushEvents, type StreamNumbers } from './flush.ts'
import { ALL_GROUPS, type Groups, groupsOf } from './groups.ts'
import { Ringer } from './ringer.ts'

/** What the outbox reads of the options of a Lockstep. */
export interface EnqueuerSettings {
  readonly maxEventBytes?: number
  readonly eventHeaders?: EventHeaders
}

/** How the events of one Lockstep are written, and who hears of it. */
export class OutboxEnqueuer implements PartHooks {
  readonly planner: Planner
  readonly #schema: string
  readonly #maxBytes: number
  readonly #eventHeaders: EventHeaders | undefined
  readonly #name: string
  readonly #listeners = new Set<(groups: Groups) => void>()
  readonly #ringer: Ringer

  constructor(setup: PartSetup, { maxEventBytes: maxBytes = DEFAULT_MAX_BYTES, eventHeaders }: EnqueuerSettings) {
    this.planner = streamsPlanner(setup.quotedSchema)
    this.#schema = setup.quotedSchema
    this.#name = setup.schema
    this.#ringer = new Ringer(setup)
    this.#maxBytes = maxBytes
    this.#eventHeaders = eventHeaders
    if (!Number.isInteger(maxBytes) || maxBytes < 1) {
      throw new InvalidOptionError(`maxEventBytes is ${String(maxBytes)}.`, { advice: 'Use a whole number of bytes.' })
    }
  }

  prepare(event: EventToEnqueue): PreparedEvent {
    return prepareEvent(event, this.#maxBytes, this.#eventHeaders)
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
    if (this.#listeners.size === 0 && this.#ringer.quiet) return
    const groups = events.length > HASHED_AT_ONCE ? ALL_GROUPS : groupsOf(this.#name, events)
    for (const listener of this.#listeners) listener(groups)
    this.#ringer.ring(groups)
  }

  onCommitted(listener: (groups: Groups) => void): () => void {
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
