import { InvalidOptionError } from '../errors.ts'
import type { EventToEnqueue } from '../events/index.ts'
import type { Statement } from '../postgres/index.ts'
import type { PartHooks, Planner } from '../transactions/index.ts'
import { streamsPlanner } from './declaredStreams.ts'
import { DEFAULT_MAX_BYTES, type EventHeaders, type PreparedEvent, prepareEvent } from './event.ts'
import { flushEvents, type StreamNumbers } from './flush.ts'

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
  readonly #listeners = new Set<() => void>()

  constructor(quotedSchema: string, { maxEventBytes: maxBytes = DEFAULT_MAX_BYTES, eventHeaders }: EnqueuerSettings) {
    this.planner = streamsPlanner(quotedSchema)
    this.#schema = quotedSchema
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

  committed(): void {
    for (const listener of this.#listeners) listener()
  }

  onCommitted(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }
}
