import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, LeaseLostError, NestedTransactionError } from '../errors.ts'
import { checkKey, type Key } from '../locks/index.ts'
import type { Lease, LeaseOptions, Leases } from '../leases/index.ts'
import {
  isInsideTransaction,
  type OnceResult,
  type Transaction,
  type TransactionOptions,
} from '../transactions/index.ts'
import { isUniqueViolation, type OnDuplicate } from './once.ts'

/** What `find` sees: the thing, the beginning of it that somebody has written down, or nothing. */
export type Found<Value, Pending> = { readonly done: Value } | { readonly pending: Pending } | undefined | null

/** What `act` is told beside what was begun. */
export interface ActContext {
  /** Aborted when the lease is lost: somebody else may be at it then. */
  readonly signal: AbortSignal
  /** For an other side that can refuse a late caller. */
  readonly fence: bigint
  /** True where somebody else had begun and did not end it: what it did outside may be there already, under the same id. */
  readonly takenOver: boolean
}

/** What `lockstep.onceExternal()` takes beside the key. */
export interface OnceExternalOptions<Value, Pending, Outcome, Client = unknown> extends Pick<
  LeaseOptions,
  'ttlMs' | 'signal' | 'holder'
> {
  /**
   * How long to wait for a caller that is creating it. `0` asks once, `false` waits without limit. Default 30,000, unlike a lease, which
   * does not wait: the caller wants what the other one creates, and gets it from `find`.
   */
  readonly waitMs?: number | false
  /** Looks for the thing, or its beginning. */
  readonly find: (tx: Transaction<Client>) => Promise<Found<Value, Pending>>
  /** Writes the beginning down, with an id of its own making that the other side will know it by, and gives it back. */
  readonly begin: (tx: Transaction<Client>) => Promise<Pending>
  /** Does the thing outside, with the id that was written down. No connection is held meanwhile. */
  readonly act: (pending: Pending, context: ActContext) => Promise<Outcome>
  /** Writes the end down. */
  readonly finish: (tx: Transaction<Client>, pending: Pending, outcome: Outcome) => Promise<NonNullable<Value>>
  /** `act` has failed: takes the beginning away again. Without it, the next caller takes it over. */
  readonly abandon?: (tx: Transaction<Client>, pending: Pending, error: unknown) => Promise<void>
}

const ONCE_EXTERNAL_OPTIONS: OptionNames<OnceExternalOptions<never, never, never>> = {
  find: true,
  begin: true,
  act: true,
  finish: true,
  abandon: true,
  ttlMs: true,
  waitMs: true,
  signal: true,
  holder: true,
}

type Transact<Client> = <T>(options: TransactionOptions, fn: (tx: Transaction<Client>) => Promise<T>) => Promise<T>

const DEFAULT_WAIT_MS = 30_000
/** The first look may take a second, however short the wait for the lease. */
const FIRST_LOOK_MS = 1000
/** How often a lease may be lost before it is the caller's problem. */
const MAX_LOSSES = 3

/** Finds a thing, or creates it outside the database: under a lease, in steps that the next caller can take over. */
export async function onceExternal<Value, Pending, Outcome, Client>(
  transact: Transact<Client>,
  leases: Leases<Client>,
  key: Key,
  options: OnceExternalOptions<Value, Pending, Outcome, Client>,
  onDuplicate?: OnDuplicate,
): Promise<OnceResult<Value>> {
  checkKey(key)
  checkOptions('onceExternal()', options, ONCE_EXTERNAL_OPTIONS)
  checkFunctions(key, options)
  if (isInsideTransaction()) throw calledInside(key)
  const { ttlMs, signal, holder, waitMs = DEFAULT_WAIT_MS } = options
  const lease: LeaseOptions = {
    waitMs,
    ...(ttlMs === undefined ? {} : { ttlMs }),
    ...(signal === undefined ? {} : { signal }),
    ...(holder === undefined ? {} : { holder }),
  }
  // What is there needs no lease to be seen.
  const looking: TransactionOptions = {
    waitMs: waitMs === false ? false : Math.max(waitMs, FIRST_LOOK_MS),
    ...(signal === undefined ? {} : { signal }),
  }
  const found = await transact(looking, (tx) => options.find(tx))
  if (isDone(found)) return { value: found.done as NonNullable<Value>, created: false }
  let begunTwice = false
  for (let losses = 1; ; losses++) {
    let result: OnceResult<Value> | undefined
    try {
      return await leases.run(key, lease, async (held) => (result = await createUnder(held, options)))
    } catch (error) {
      // Somebody who does not take the lease has begun it: that can be found now. If not, it was about something else.
      if (error instanceof BegunTwiceError) {
        if (begunTwice) throw error.cause
        begunTwice = true
        onDuplicate?.(key, 'a unique index refused what onceExternal() wanted to begin')
        continue
      }
      // Lost after the last transaction had committed: it is done all the same.
      if (error instanceof LeaseLostError && result !== undefined) return result
      // Somebody else is at it: what it makes is what this caller wants.
      if (!(error instanceof LeaseLostError) || error.reason === 'closed' || losses >= MAX_LOSSES) throw error
    }
  }
}

/** A unique index refused the beginning. */
class BegunTwiceError extends Error {}

async function createUnder<Value, Pending, Outcome, Client>(
  lease: Lease<Client>,
  { find, begin, act, finish, abandon }: OnceExternalOptions<Value, Pending, Outcome, Client>,
): Promise<OnceResult<Value>> {
  const start = await lease.transaction({}, async (tx) => {
    const found = await find(tx)
    if (found !== undefined && found !== null) return { found, takenOver: true }
    return { found: { pending: await begin(tx) }, takenOver: false }
  }).catch((error: unknown) => {
    throw isUniqueViolation(error) ? new BegunTwiceError('', { cause: error }) : error
  })
  if (isDone(start.found)) return { value: start.found.done as NonNullable<Value>, created: false }
  const { pending } = start.found
  let outcome: Outcome
  try {
    outcome = await act(pending, { signal: lease.signal, fence: lease.fence, takenOver: start.takenOver })
  } catch (error) {
    // Who has lost the lease must not take away what the next one is at, and gets what that one makes.
    lease.assertHeld()
    await lease
      .transaction({}, async (tx) => abandon?.(tx, pending, error))
      .catch((failure: unknown) => {
        // What could not be taken away is taken over by the next; why `act` failed is what the caller must know.
        throw failure instanceof LeaseLostError ? failure : error
      })
    throw error
  }
  return lease.transaction({}, async (tx) => ({ value: await finish(tx, pending, outcome), created: true }))
}

function isDone<Value, Pending>(found: Found<Value, Pending>): found is { readonly done: Value } {
  return found !== undefined && found !== null && 'done' in found
}

/** Its beginning must be committed before it acts, and the transaction would hold its connection and its locks meanwhile. */
function calledInside(key: Key): NestedTransactionError {
  return new NestedTransactionError(`onceExternal() on ${key} was called inside a transaction.`, {
    advice:
      'Its beginning must be committed before it acts. Call it before or after the transaction, or run it inside lockstep.detached(fn).',
    keys: [key],
  })
}

function checkFunctions(key: Key, options: object): void {
  const missing = ['find', 'begin', 'act', 'finish'].filter(
    (name) => typeof (options as Record<string, unknown>)[name] !== 'function',
  )
  if (missing.length === 0) return
  throw new InvalidOptionError(
    `onceExternal() needs the functions find, begin, act and finish; missing: ${missing.join(', ')}.`,
    {
      advice: 'To create in one transaction, call once(key, { find, create }).',
      keys: [key],
    },
  )
}
