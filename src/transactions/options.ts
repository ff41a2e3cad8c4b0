import { type Checked, checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, StrategyUnsupportedError } from '../errors.ts'
import { EVENT_OPTIONS, type EventOptions } from '../events/index.ts'
import { type Closing, type Keys, type LockMethod, type LockSet, lockSet, type RecentLockIds } from '../locks/index.ts'
import { LONGEST_TIMER_MS } from '../postgres/index.ts'
import type { ConnectionSource } from './connectionSource.ts'
import { NO_PARTS, type PlannedPart, type Planner } from './plannedPart.ts'
import { checkIsolation, type Isolation } from './isolation.ts'
import { planRetry, type RetryOptions, type RetryPlan } from './retryOptions.ts'

/** What `lockstep.transaction()` takes. */
export interface TransactionOptions extends EventOptions {
  /** The keys to lock exclusively, before the first read. */
  readonly lock?: Keys
  /**
   * The keys to lock shared: many shared holders at once, and no exclusive holder at the same time. Shared holders do not exclude each
   * other: a caller that writes what the others read needs `lock`.
   */
  readonly lockShared?: Keys
  /** Always sent to the server, whatever its default is. Default `'read committed'`. */
  readonly isolation?: Isolation
  /**
   * How long the call can take until the function runs: the queue in this process, a connection and its answer, the server’s lock, and
   * attempts that failed. An attempt after the function has run gets a new `waitMs`. When the time is over, the caller has its error within
   * 100 ms. `0` tries once and does not wait, `false` waits without limit. Default 30,000. A lease does not wait by default, but
   * transactions are short.
   */
  readonly waitMs?: number | false
  /**
   * Tries the locks without waiting for them. If another session holds one, it throws `LockTimeoutError` at once. All of `waitMs` is then
   * for getting a connection. Default false.
   */
  readonly noWait?: boolean
  /** Ends the wait. It does not stop a function that already runs. */
  readonly signal?: AbortSignal
  /**
   * Retries 40001, 40P01 and a lost connection, so the function can run more than once. `false` turns it off, and Lockstep then cannot find
   * out the outcome of a COMMIT whose answer was lost.
   */
  readonly retry?: false | RetryOptions
}

export const TRANSACTION_OPTIONS: OptionNames<TransactionOptions> = {
  lock: 'never undefined',
  lockShared: 'never undefined',
  ...EVENT_OPTIONS,
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

/** The same for the whole library. */
export interface TransactionDefaults {
  readonly waitMs: number | false
  readonly retry: RetryPlan
}

/** A checked call. */
export interface TransactionPlan {
  /** The locks that are taken: those that the caller declares, unless a part leaves some out, then those of the parts. */
  readonly locks: LockSet
  readonly declared: LockSet
  /** What parts do in this call, and the locks that they need, which come after all others. */
  readonly parts: readonly PlannedPart[]
  readonly partLocks: LockSet
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
  readonly pauses: RetryPlan['pauses']
  /** Whether a COMMIT whose answer was lost is to be looked into. */
  readonly resolvesCommit: boolean
  readonly closing: Closing
  /** Where it gets its connection. Undefined: from the pool. */
  readonly source?: ConnectionSource
}

const DEFAULT_WAIT_MS = 30_000
/** setTimeout and lock_timeout both end here. */
const MAX_WAIT_MS = LONGEST_TIMER_MS

/** What a plan is made with. */
interface PlanContext {
  readonly lockIds: RecentLockIds
  readonly defaults: TransactionDefaults
  readonly closing: Closing
  readonly method: LockMethod
  readonly parts: { readonly planners: readonly Planner[] }
}

/** Checks a call before anything is sent. `closing`: what turns it away; by default the end of its Lockstep. */
export function planTransaction(
  context: PlanContext,
  options: TransactionOptions,
  closing = context.closing,
): TransactionPlan {
  checkOptions('transaction()', options, TRANSACTION_OPTIONS)
  const { lockIds, defaults, method } = context
  const locks = lockSet(lockIds, options.lock, options.lockShared)
  const isolation = checkIsolation(options.isolation)
  if (isolation !== 'read committed' && locks.length > 0 && !method.heldBySession)
    throw onlyReadCommitted(method, isolation, locks)
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) {
    throw new InvalidOptionError('`signal` is not an AbortSignal.', { advice: 'Pass `controller.signal`.' })
  }
  const waitMs = checkWaitMs(options.waitMs, defaults.waitMs)
  const parts = planParts(context, options, isolation)
  const retry = options.retry === false ? defaults.retry : planRetry(options.retry, defaults.retry)
  const partLocks = parts.length === 0 ? NO_LOCKS : parts.flatMap((part) => part.locks ?? NO_LOCKS)
  return {
    locks: partLocks.length === 0 ? locks : [...locks, ...partLocks],
    declared: locks,
    parts,
    partLocks,
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
    attempts: options.retry === false ? 1 : retry.attempts,
    pauses: retry.pauses,
    resolvesCommit: options.retry !== false,
    closing,
  }
}

/** The same call with only some of the locks that the caller declares. */
export function withLocks(plan: TransactionPlan, locks: LockSet): TransactionPlan {
  return { ...plan, locks: [...locks, ...plan.partLocks], keys: exclusiveKeys(locks), sharedKeys: sharedKeys(locks) }
}

/** The names of the locks that are exclusive, as events have them. */
function exclusiveKeys(locks: LockSet): readonly string[] {
  return locks.filter((lock) => !lock.shared).map((lock) => lock.key)
}

function sharedKeys(locks: LockSet): readonly string[] {
  return locks.filter((lock) => lock.shared).map((lock) => lock.key)
}

/** Checks the defaults of the whole library. */
export function planDefaults(options: {
  waitMs?: number | false | undefined
  retry?: RetryOptions | undefined
}): TransactionDefaults {
  return {
    waitMs: checkWaitMs(options.waitMs, DEFAULT_WAIT_MS),
    retry: planRetry(options.retry),
  }
}

const NO_LOCKS: LockSet = []

/** What the parts do in the call whose options were given. */
function planParts(
  { parts: { planners }, lockIds, method }: PlanContext,
  options: TransactionOptions,
  isolation: Isolation,
): readonly PlannedPart[] {
  let planned: PlannedPart[] | undefined
  for (const planner of planners) {
    const given = (options as Readonly<Record<string, unknown>>)[planner.option]
    if (given === undefined) continue
    const part = planner.plan(given, { schema: lockIds.schema, isolation, method })
    if (part !== undefined) (planned ??= []).push(part)
  }
  return planned ?? NO_PARTS
}

function onlyReadCommitted({ name }: LockMethod, isolation: Isolation, locks: LockSet): StrategyUnsupportedError {
  return new StrategyUnsupportedError(
    `With strategy '${name}' a lock cannot be had before the snapshot of ${isolation.toUpperCase()}.`,
    {
      advice: "Use READ COMMITTED, or strategy 'advisory'.",
      keys: locks.map((lock) => lock.key),
    },
  )
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
