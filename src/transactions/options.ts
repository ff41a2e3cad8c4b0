import { type Checked, checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, StrategyUnsupportedError } from '../errors.ts'
import { type Closing, type Keys, type LockSet, lockSet, type RecentLockIds, type Shadow } from '../locks/index.ts'
import { LONGEST_TIMER_MS } from '../postgres/index.ts'
import { nameOf, type Stream } from './enqueuer.ts'
import { exclusiveKeys, sharedKeys } from './applyRollout.ts'
import type { LockRetention } from './lockRetention.ts'
import { locksOfStreams } from './streamLocks.ts'
import type { Isolation } from './transactions.sql.ts'

/** How often a failed transaction is tried again. */
export interface RetryOptions {
  /** All tries together, the first included. Default 10. */
  readonly attempts?: number
}

const RETRY_OPTIONS: OptionNames<RetryOptions> = { attempts: true }

/** What `lockstep.transaction()` takes. */
export interface TransactionOptions {
  /** The keys to lock exclusively, before the first read. */
  readonly lock?: Keys
  /**
   * The keys to lock shared: many readers together, no exclusive holder beside them. Those that hold it together do not exclude each
   * other: whoever writes what the others read takes the key with `lock`.
   */
  readonly lockShared?: Keys
  /**
   * Streams of the outbox that the transaction will enqueue to. Needed at REPEATABLE READ and SERIALIZABLE, where the last number of
   * a stream must be read before the snapshot; at every level they are locked from the beginning.
   */
  readonly streams?: readonly Stream[]
  /** Always stated to the server, whatever its default is. Default `'read committed'`. */
  readonly isolation?: Isolation
  /**
   * How long it may take until the function runs, in all places together: for callers of this process, for a connection and its answer,
   * for the server's lock, and for attempts that fail before. An attempt after the function has run begins with all of it again. The
   * caller has its answer at most 100 ms after its end. `0` asks once and does not wait, `false` waits without limit. Default 30,000, unlike
   * a lease, which does not wait: transactions are short, and the caller that waits is soon served.
   */
  readonly waitMs?: number | false
  /**
   * Tries the locks and does not wait for them: one that another session holds is `LockTimeoutError` at once. All of `waitMs` is then for a
   * connection to ask through. Default false.
   */
  readonly noWait?: boolean
  /** Ends the wait. Once the transaction runs, ending it is up to the function. */
  readonly signal?: AbortSignal
  /**
   * 40001, 40P01 and a lost connection are tried again: the function must bear being run twice. `false` turns it off, and with it
   * the means to find out what became of a COMMIT whose answer was lost.
   */
  readonly retry?: false | RetryOptions
}

export const TRANSACTION_OPTIONS: OptionNames<TransactionOptions> = {
  lock: 'never undefined',
  lockShared: 'never undefined',
  streams: true,
  isolation: true,
  waitMs: true,
  noWait: true,
  signal: true,
  retry: true,
}

/** Options as the compiler checks them: no unknown name, and no key that may be undefined. */
export type CheckedTransaction<Given extends TransactionOptions> = Checked<
  Given,
  TransactionOptions,
  'lock' | 'lockShared'
>

/** How keys are locked: with advisory locks, or with a row for each where there are none. */
export type Strategy = 'advisory' | 'table'

/** The same for the whole library. */
export interface TransactionDefaults {
  readonly waitMs: number | false
  readonly attempts: number
  readonly strategy: Strategy
}

/** A checked call. */
export interface TransactionPlan {
  /** The locks that are taken: those that were declared, less those that the rollout leaves out. */
  readonly locks: LockSet
  readonly declared: LockSet
  /** The streams that were declared, and their locks, which come after all others. */
  readonly streams: readonly Stream[]
  readonly streamLocks: LockSet
  /** Stand-ins for the keys that are only observed. */
  readonly shadows: readonly Shadow[]
  readonly keys: readonly string[]
  readonly sharedKeys: readonly string[]
  /** Exclusive and shared. */
  readonly allKeys: readonly string[]
  readonly isolation: Isolation
  /** Whether the caller named the isolation, or takes what is there. */
  readonly isolationStated: boolean
  readonly waitMs: number | false
  /** The same for the first attempt. */
  readonly firstWaitMs: number | false
  readonly noWait: boolean
  readonly signal: AbortSignal | undefined
  readonly attempts: number
  /** Whether a COMMIT whose answer was lost is to be looked into. */
  readonly resolvesCommit: boolean
  readonly closing: Closing
  /** Where another transaction with the same locks may follow at once. */
  readonly retention?: LockRetention
}

const ISOLATIONS: readonly Isolation[] = ['read committed', 'repeatable read', 'serializable']
/** Where each statement has a snapshot of its own. In PostgreSQL the two are the same; a joined transaction may be either. */
const READS_FRESH: ReadonlySet<string> = new Set(['read committed', 'read uncommitted'])
const DEFAULT_ATTEMPTS = 10
const DEFAULT_WAIT_MS = 30_000
/** setTimeout and lock_timeout both end here. */
const MAX_WAIT_MS = LONGEST_TIMER_MS
const MAX_ATTEMPTS = 1000
const MAX_STREAMS = 100

/** Whether each statement of a transaction with this isolation sees what was committed before it. */
export function readsFresh(isolation: Isolation): boolean {
  return READS_FRESH.has(isolation)
}

/** What a plan is made with. */
interface PlanContext {
  readonly lockIds: RecentLockIds
  readonly defaults: TransactionDefaults
  readonly closing: Closing
}

/** Checks a call before anything is sent. `closing`: what turns it away; by default the end of its Lockstep. */
export function planTransaction(
  { lockIds: ids, defaults, closing: ownClosing }: PlanContext,
  options: TransactionOptions,
  closing = ownClosing,
): TransactionPlan {
  checkOptions('transaction()', options, TRANSACTION_OPTIONS)
  const locks = lockSet(ids, options.lock, options.lockShared)
  const isolation = checkIsolation(options.isolation)
  if (defaults.strategy === 'table' && isolation !== 'read committed' && locks.length > 0)
    throw onlyReadCommitted(isolation, locks)
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) {
    throw new InvalidOptionError('`signal` is not an AbortSignal.', { advice: 'Pass `controller.signal`.' })
  }
  const waitMs = checkWaitMs(options.waitMs, defaults.waitMs)
  const streams =
    options.streams === undefined ? NO_STREAMS : checkStreams(options.streams, isolation, defaults.strategy)
  const streamLocks = streams.length === 0 ? NO_LOCKS : locksOfStreams(ids.schema, streams)
  return {
    locks: streamLocks.length === 0 ? locks : [...locks, ...streamLocks],
    declared: locks,
    streams,
    streamLocks,
    shadows: [],
    // Written out: spreading an object takes longer than all the rest of this.
    keys: exclusiveKeys(locks),
    sharedKeys: sharedKeys(locks),
    allKeys: locks.map((lock) => lock.key),
    isolation,
    isolationStated: options.isolation !== undefined,
    waitMs,
    firstWaitMs: waitMs,
    noWait: checkNoWait(options.noWait),
    signal: options.signal,
    attempts: options.retry === false ? 1 : checkAttempts(options.retry, defaults.attempts),
    resolvesCommit: options.retry !== false,
    closing,
  }
}

/** Checks the defaults of the whole library. */
export function planDefaults(options: {
  waitMs?: number | false | undefined
  retry?: RetryOptions | undefined
  strategy?: Strategy | undefined
}): TransactionDefaults {
  return {
    waitMs: checkWaitMs(options.waitMs, DEFAULT_WAIT_MS),
    attempts: checkAttempts(options.retry, DEFAULT_ATTEMPTS),
    strategy: checkStrategy(options.strategy),
  }
}

function checkStrategy(strategy: unknown = 'advisory'): Strategy {
  if (strategy === 'advisory' || strategy === 'table') return strategy
  throw new InvalidOptionError(`There is no strategy ${String(strategy)}.`, { advice: "Use 'advisory' or 'table'." })
}

const NO_STREAMS: readonly Stream[] = []
const NO_LOCKS: LockSet = []

function checkStreams(given: unknown, isolation: Isolation, strategy: Strategy): readonly Stream[] {
  const streams = new Map<string, Stream>()
  for (const each of Array.isArray(given) ? (given as unknown[]) : [undefined]) {
    const { topic, key } = (each ?? {}) as Partial<Stream>
    if (typeof topic !== 'string' || typeof key !== 'string') {
      throw new InvalidOptionError('`streams` is not a list of { topic, key }.', {
        advice: "Pass for example streams: [{ topic: 'trades', key: portfolioId }].",
      })
    }
    streams.set(nameOf({ topic, key }), { topic, key })
  }
  if (streams.size > MAX_STREAMS) {
    throw new InvalidOptionError(`${streams.size} streams in one transaction are more than ${MAX_STREAMS}.`, {
      advice: 'At READ COMMITTED streams need not be declared.',
    })
  }
  if (strategy === 'table' && streams.size > 0) {
    throw new StrategyUnsupportedError(
      `With strategy 'table' streams cannot be declared at ${isolation.toUpperCase()}.`,
      {
        advice: "Use READ COMMITTED without `streams`, or strategy 'advisory'.",
      },
    )
  }
  return [...streams.values()]
}

function onlyReadCommitted(isolation: Isolation, locks: LockSet): StrategyUnsupportedError {
  return new StrategyUnsupportedError(
    `With strategy 'table' a lock cannot be had before the snapshot of ${isolation.toUpperCase()}.`,
    {
      advice: "Use READ COMMITTED, or strategy 'advisory'.",
      keys: locks.map((lock) => lock.key),
    },
  )
}

function checkIsolation(isolation: unknown = 'read committed'): Isolation {
  if (ISOLATIONS.includes(isolation as Isolation)) return isolation as Isolation
  throw new InvalidOptionError(`There is no isolation ${String(isolation)}.`, {
    advice: `Use one of ${ISOLATIONS.join(', ')}.`,
  })
}

export function checkWaitMs(
  waitMs: number | false | undefined,
  otherwise: number | false,
  name = 'waitMs',
): number | false {
  if (waitMs === undefined) return otherwise
  if (waitMs === false) return false
  if (typeof waitMs !== 'number' || Number.isNaN(waitMs) || waitMs < 0 || waitMs > MAX_WAIT_MS) {
    throw new InvalidOptionError(`${name} is ${String(waitMs)}.`, {
      advice: `Use 0 to ${MAX_WAIT_MS} milliseconds, or false for no limit.`,
    })
  }
  return waitMs
}

function checkNoWait(noWait: unknown = false): boolean {
  if (typeof noWait === 'boolean') return noWait
  throw new InvalidOptionError(`noWait is ${String(noWait)}.`, { advice: 'Use true or false.' })
}

function checkAttempts(retry: RetryOptions | undefined, otherwise: number): number {
  if (retry === undefined) return otherwise
  if (typeof retry !== 'object' || retry === null) {
    throw new InvalidOptionError(`retry is ${String(retry)}.`, {
      advice:
        'Use { attempts }; in a call also false. A Lockstep has no retry: false, because it is a choice of each call.',
    })
  }
  checkOptions('retry', retry, RETRY_OPTIONS)
  const { attempts = otherwise } = retry
  if (!Number.isInteger(attempts) || attempts < 1 || attempts > MAX_ATTEMPTS) {
    throw new InvalidOptionError(`retry.attempts is ${String(attempts)}.`, {
      advice: `Use 1 to ${MAX_ATTEMPTS}, or retry: false.`,
    })
  }
  return attempts
}
