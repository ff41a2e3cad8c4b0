import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, LockAbortedError, NestedTransactionError, QueueFullError } from '../errors.ts'
import { checkKey, closedError, type Key } from '../locks/index.ts'
import { combineRefused } from '../observe/index.ts'
import {
  checkWaitMs,
  type LockstepContext,
  type Isolation,
  isInsideTransaction,
  type Transaction,
} from '../transactions/index.ts'
import { Batcher, type Combiners } from './batcher.ts'

/** What `lockstep.combine()` takes. */
export interface CombineOptions<Item, Result, Client = unknown> {
  /** The key of a call. Calls with the same key are combined, under its lock. */
  readonly key: (item: Item) => Key
  /**
   * Does the work of all items in one transaction. Returns one entry for each, in the same order: a result, or an `Error` that rejects that
   * caller alone. Lock the rows of all items first, with one `lockRows`. It can run again after a conflict.
   */
  readonly run: (tx: Transaction<Client>, items: readonly Item[]) => Promise<readonly (Result | Error)[]>
  /** The maximum number of calls in one transaction. Default 1,000. */
  readonly maxBatch?: number
  /** How many calls can wait for one key. The limit for all keys together is ten times as high. Default 10,000. */
  readonly maxQueue?: number
  /**
   * How long a call waits for its batch to begin. `false` waits without limit. Default 30,000, as for a transaction. `0` is refused,
   * because no batch begins at once.
   */
  readonly waitMs?: number | false
  /** Default READ COMMITTED. */
  readonly isolation?: Isolation
}

const COMBINE_OPTIONS: OptionNames<CombineOptions<never, never>> = {
  key: true,
  run: true,
  maxBatch: true,
  maxQueue: true,
  waitMs: true,
  isolation: true,
}

/** Options of one call. */
export interface CombinedCall {
  /** Ends the wait. A call whose batch has begun is no longer to be stopped. */
  readonly signal?: AbortSignal
}

const CALL_OPTIONS: OptionNames<CombinedCall> = { signal: true }

/** What `lockstep.combine()` gives: call it with one item, get that item's result. */
export type Combined<Item, Result> = (item: Item, call?: CombinedCall) => Promise<Result>

const DEFAULT_MAX_BATCH = 1000
const DEFAULT_MAX_QUEUE = 10_000
const DEFAULT_WAIT_MS = 30_000
/** All keys together, in queues of one key. */
const ALL_KEYS = 10

/** Makes the function. */
export function combine<Item, Result>(
  context: LockstepContext,
  combiners: Combiners,
  options: CombineOptions<Item, Result>,
): Combined<Item, Exclude<Result, Error>> {
  checkOptions('combine()', options, COMBINE_OPTIONS)
  const { key: keyOf, run } = options
  if (typeof keyOf !== 'function' || typeof run !== 'function') {
    throw new InvalidOptionError('combine() needs two functions, `key` and `run`.', {
      advice: 'Call combine({ key: (item) => key`Account:${item.to}`, run: async (tx, items) => … }).',
    })
  }
  const maxQueue = checkCount('maxQueue', options.maxQueue ?? DEFAULT_MAX_QUEUE)
  const batcher = new Batcher<Item, Exclude<Result, Error>>(context, combiners, {
    run: run as (tx: Transaction, items: readonly Item[]) => Promise<readonly (Exclude<Result, Error> | Error)[]>,
    maxBatch: checkCount('maxBatch', options.maxBatch ?? DEFAULT_MAX_BATCH),
    waitMs: checkWait(options.waitMs),
    isolation: options.isolation,
  })

  // Not an async function: thousands of callers a second need no second promise each.
  return (item, call) => {
    try {
      if (call !== undefined) checkOptions('a combined call', call, CALL_OPTIONS)
      const signal = call?.signal
      if (context.closing.closed) throw closedError()
      const key = checkKey(keyOf(item))
      if (isInsideTransaction()) throw calledInside(key)
      if (signal?.aborted === true) throw abortedBefore(key, signal)
      const waiting = batcher.waitingFor(key)
      if (waiting >= maxQueue || batcher.waiting >= maxQueue * ALL_KEYS) {
        if (combineRefused.hasSubscribers) combineRefused.publish({ schema: context.schema, key, waiting })
        throw queueFull(key, waiting, batcher.waiting)
      }
      return batcher.enter(key, item, signal)
    } catch (error) {
      return refuse(error)
    }
  }
}

async function refuse(error: unknown): Promise<never> {
  throw error
}

function checkWait(waitMs: number | false | undefined): number | false {
  if (waitMs !== 0) return checkWaitMs(waitMs, DEFAULT_WAIT_MS, 'waitMs')
  throw new InvalidOptionError('waitMs is 0.', { advice: 'No batch begins at once: allow some milliseconds.' })
}

function checkCount(name: string, count: unknown): number {
  if (typeof count === 'number' && Number.isInteger(count) && count > 0) return count
  throw new InvalidOptionError(`${name} is ${String(count)}.`, { advice: 'Use a whole number above 0.' })
}

function calledInside(key: Key): NestedTransactionError {
  return new NestedTransactionError(`A combined call on ${key} was made from inside a transaction.`, {
    advice:
      'It is served by a transaction of its own, which could wait for this one. Call it before or after; code that does not belong to the transaction runs inside lockstep.detached(fn).',
    keys: [key],
  })
}

function abortedBefore(key: Key, signal: AbortSignal): LockAbortedError {
  return new LockAbortedError(`The call on ${key} was not made: its signal was aborted before.`, {
    advice: 'Nothing was done for it; call again if you still need it.',
    keys: [key],
    cause: signal.reason,
  })
}

function queueFull(key: Key, waiting: number, all: number): QueueFullError {
  return new QueueFullError(`${waiting} calls wait for ${key} already, ${all} for all keys together.`, {
    advice: 'Nothing was done for this call. Ask the caller to try again later, or allow a longer maxQueue.',
    keys: [key],
    waiting,
  })
}
