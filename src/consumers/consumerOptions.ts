import { type CallWithFunction, checkFunction, checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import type { InboxEvent } from '../inbox/index.ts'
import { type DispatcherOptions, checkNumber } from '../outbox/index.ts'
import type { Isolation } from '../transactions/index.ts'
import type { ConsumedEvent } from './handler.ts'
import type { LanesPlan } from './lanes.ts'

/** How many transactions of one tenant are open at once, at most. */
export interface LimitBy<Event = ConsumedEvent> {
  /** The tenant of an event: all events of a key should have the same one. */
  readonly tenant: (event: Event) => string
  /** Less than the `concurrency` of the consumer, so that the others always have free transactions. */
  readonly concurrency: number
}

const LIMIT_BY: OptionNames<LimitBy> = { tenant: true, concurrency: true }

/** What every consumer takes, whatever its events come from. */
export interface HandlingOptions<Event = ConsumedEvent> {
  /** The maximum number of open transactions in this process. Each needs a connection of the pool. Default 8. */
  readonly concurrency?: number
  /** The maximum number of events in one transaction. If handlers are slow, it has fewer. Default 100. */
  readonly batch?: number
  /** Whether the handler receives lists: consecutive events of one key. Default false. */
  readonly lists?: boolean
  /**
   * Whether one transaction can have events of several keys, which is several times faster. An error of one handler then rolls all of them
   * back, and they are handled again separately. `false`: a transaction has events of one key. Default true.
   */
  readonly sharedTransactions?: boolean
  /** A limit for each tenant, so that a slow one does not use all transactions. Default: none. */
  readonly limitBy?: LimitBy<Event>
  /** Whether the handler also gets tombstones, whose number was given up and which have no payload. Default false. */
  readonly handlesTombstones?: boolean
  /** The isolation level of the transactions. Default `'read committed'`. */
  readonly isolation?: Isolation
  /** How long a transaction can take before it is rolled back. Default 30,000. */
  readonly timeoutMs?: number
}

export const HANDLING_OPTIONS: OptionNames<HandlingOptions> = {
  concurrency: true,
  batch: true,
  lists: true,
  sharedTransactions: true,
  limitBy: true,
  handlesTombstones: true,
  isolation: true,
  timeoutMs: true,
}

/** What `lockstep.consumer()` takes beside the name: also the options of the dispatcher that it is. */
export interface ConsumerOptions<Topic extends string = string, Event = ConsumedEvent>
  extends HandlingOptions<Event>, Omit<DispatcherOptions, 'sink' | 'name' | 'topics' | 'batch'> {
  /** The topics that it handles. A star at the end matches any rest. Default: all topics. */
  readonly topics?: readonly Topic[]
}

export const CONSUMER_OPTIONS: OptionNames<ConsumerOptions> = {
  ...HANDLING_OPTIONS,
  topics: true,
  shards: true,
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
export interface HandlingPlan<Event> extends LanesPlan<Event> {
  readonly lists: boolean
  readonly handlesTombstones: boolean
  readonly isolation: Isolation | undefined
  readonly timeoutMs: number
}

const ISOLATIONS: readonly Isolation[] = ['read committed', 'repeatable read', 'serializable']
const MAX_MS = 2_147_483_647

/** `where` is how the caller calls it. */
export function planHandling<Event extends InboxEvent>(
  where: CallWithFunction,
  options: HandlingOptions<Event>,
  handler: unknown,
): HandlingPlan<Event> {
  checkFunction(where, handler)
  const { limitBy, isolation, lists = false, sharedTransactions = true, handlesTombstones = false } = options
  const concurrency = checkNumber('concurrency', options.concurrency ?? 8, 1, 1000)
  if (limitBy !== undefined) {
    checkOptions('limitBy', limitBy, LIMIT_BY)
    if (typeof limitBy.tenant !== 'function') {
      throw new InvalidOptionError('limitBy has no `tenant`.', {
        advice: 'Pass limitBy: { tenant: (event) => event.headers.tenant, concurrency: 2 }.',
      })
    }
    checkNumber('limitBy.concurrency', limitBy.concurrency, 1, concurrency)
  }
  if (isolation !== undefined && !ISOLATIONS.includes(isolation)) {
    throw new InvalidOptionError(`Unknown isolation level ${isolation}.`, {
      advice: `Use one of ${ISOLATIONS.join(', ')}.`,
    })
  }
  return {
    concurrency,
    batch: checkNumber('batch', options.batch ?? 100, 1, 10_000),
    shared: sharedTransactions,
    limitBy,
    lists,
    handlesTombstones,
    isolation,
    timeoutMs: checkNumber('timeoutMs', options.timeoutMs ?? 30_000, 1, MAX_MS),
  }
}
