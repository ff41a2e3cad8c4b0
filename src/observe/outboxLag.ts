import { FreshAnswer } from './freshAnswer.ts'

/** The part of `lockstep.outbox` that returns how far behind dispatchers are. */
export interface OutboxToWatch {
  status(): Promise<{
    readonly shards: readonly {
      readonly dispatcher: string
      readonly lagEvents: number
      readonly lagMs: number
      readonly parkedStreams: number
    }[]
  }>
}

/** How far behind one dispatcher is, all shards together. */
export interface DispatcherLag {
  readonly dispatcher: string
  /** Events that were committed and are not delivered. */
  readonly events: number
  /** The age of the oldest of them. */
  readonly seconds: number
  readonly parkedStreams: number
}

/** Asks the database how far behind the dispatchers are, when the metrics are read. */
export class OutboxLag extends FreshAnswer<DispatcherLag> {
  constructor(outbox: OutboxToWatch) {
    super(async () => byDispatcher((await outbox.status()).shards))
  }
}

function byDispatcher(shards: Awaited<ReturnType<OutboxToWatch['status']>>['shards']): DispatcherLag[] {
  const found = new Map<string, DispatcherLag>()
  for (const { dispatcher, lagEvents, lagMs, parkedStreams } of shards) {
    const { events = 0, seconds = 0, parkedStreams: parked = 0 } = found.get(dispatcher) ?? {}
    found.set(dispatcher, {
      dispatcher,
      events: events + lagEvents,
      seconds: Math.max(seconds, lagMs / 1000),
      parkedStreams: parked + parkedStreams,
    })
  }
  return [...found.values()]
}
