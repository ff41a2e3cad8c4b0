import type { OptionNames } from './checkOptions.ts'
import { InvalidOptionError } from './errors.ts'
import type { EventContracts, EventMap } from './events/index.ts'
import type { Strategy } from './locks/index.ts'
import type { EventHeaders } from './outbox/index.ts'
import type { Rollout, SwitchBackTriggers } from './rollout/index.ts'
import type { RetryOptions } from './transactions/index.ts'

/** Options of `new Lockstep()`. */
export interface LockstepOptions<Events extends object = EventMap, Consumed extends object = Events> {
  /** The schema that holds Lockstep's tables and functions. Part of every lock's identity. Default `lockstep`. */
  readonly schema?: string
  /** Default for `waitMs` of every transaction. Leases have a default of their own, because they are held for longer. */
  readonly waitMs?: number | false
  /**
   * How many calls can wait for one key in this process; for all keys and for connections together, ten times as many. One more that has
   * to wait fails at once with `QueueFullError`. The same for leases. Default 10,000.
   */
  readonly maxQueue?: number
  /** Default for `retry` of every call. */
  readonly retry?: RetryOptions
  /** An answer to BEGIN or COMMIT that has not come for this long means that the connection is lost. Default 30,000. */
  readonly silenceMs?: number
  /**
   * Whether the keys in use are written to the table `lock_names`, in the background, so that the lock list shows names and not
   * numbers. `false` where keys hold what must not be stored. Default true.
   */
  readonly names?: boolean
  /** Which keys are locked, observed or left alone. Default: all are locked. */
  readonly rollout?: Rollout
  /** When Lockstep switches a prefix back to `observe`. Only together with `rollout`. */
  readonly switchBack?: SwitchBackTriggers
  /** A wait that lasts longer is reported by the event `lock.slow`. Default 100. */
  readonly slowWaitMs?: number
  /** `'table'` locks a row for each key, for places without advisory locks; READ COMMITTED only. Default `'advisory'`. */
  readonly strategy?: Strategy
  /** How large an event with its headers may be. Default 1,000,000. */
  readonly maxEventBytes?: number
  /** Headers for every event, such as `traceparent`; the event's own come first. */
  readonly eventHeaders?: EventHeaders
  /** What payloads look like, from `defineEvents()`: checked when events are enqueued and consumed. Default: they are not checked. */
  readonly events?: EventContracts<Events, Consumed>
}

export const LOCKSTEP_OPTIONS: OptionNames<LockstepOptions> = {
  schema: true,
  waitMs: true,
  maxQueue: true,
  retry: true,
  silenceMs: true,
  names: true,
  rollout: true,
  switchBack: true,
  slowWaitMs: true,
  strategy: true,
  maxEventBytes: true,
  eventHeaders: true,
  events: true,
}

export function checkMilliseconds(name: string, milliseconds: number): number {
  if (Number.isFinite(milliseconds) && milliseconds > 0) return milliseconds
  throw new InvalidOptionError(`${name} is ${String(milliseconds)}.`, {
    advice: 'Use a number of milliseconds above 0.',
  })
}

export function checkNames(names: unknown = true): boolean {
  if (typeof names === 'boolean') return names
  throw new InvalidOptionError(`names is ${String(names)}.`, { advice: 'Use true or false.' })
}
