import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError, LeaseHeldError, LeaseLostError, NestedTransactionError } from '../errors.ts'
import { checkKey, type Key, WaitBudget } from '../locks/index.ts'
import type { Lease, LeaseOptions, Leases } from '../leases/index.ts'
import { onAbort } from '../postgres/index.ts'
import {
  checkWaitMs,
  isInsideTransaction,
  type LockstepContext,
  type OnceResult,
  type Transaction,
  type TransactionOptions,
} from '../transactions/index.ts'
import type { CreationQueue, Turn } from './creationQueue.ts'
import { isUniqueViolation, type OnDuplicate } from './once.ts'

/** What `find` sees: the thing, the beginning of it that a caller has written down, or nothing. */
export type Found<Value, Pending> = { readonly done: Value } | { readonly pending: Pending } | undefined | null

/** What `act` receives beside what was begun. */
export interface ActContext {
  /** Aborted when the lease is lost: another caller may create it then. */
  readonly signal: AbortSignal
  /** For an other side that can refuse a late caller. */
  readonly fence: bigint
  /** True if another caller had begun and did not finish it: what it did outside may be there already, under the same id. */
  readonly takenOver: boolean
}

/** What `lockstep.onceExternal()` takes beside the key. */
export interface OnceExternalOptions<Value, Pending, Outcome, Client = unknown> extends Pick<
  LeaseOptions,
  'ttlMs' | 'signal' | 'holder'
> {
  /**
   * How long to wait for a caller that is creating it. `0` tries once, `false` waits without limit. Default 30,000. A lease does not wait
   * by default, but here the caller needs what the other one creates, and gets it from `find`.
   */
  readonly waitMs?: number | false
  /** Looks for the thing, or for an attempt to create it. */
  readonly find: (tx: Transaction<Client>) => Promise<Found<Value, Pending>>
  /** Writes the attempt, with an id that it generates and that the other system will know it by. Returns the attempt. */
  readonly begin: (tx: Transaction<Client>) => Promise<Pending>
  /** Creates the thing outside the database, with the id of the attempt. It holds no connection meanwhile. */
  readonly act: (pending: Pending, context: ActContext) => Promise<Outcome>
  /** Writes the result. */
  readonly finish: (tx: Transaction<Client>, pending: Pending, outcome: Outcome) => Promise<NonNullable<Value>>
  /** Removes the attempt if `act` has failed. Without it, the next caller takes the attempt over. */
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
/** A look may take a second, however short the wait for the lease. */
const LOOK_MS = 1000
/** How often a lease may be lost before it is the caller's problem. */
const MAX_LOSSES = 3

/** What a Lockstep creates with. */
export interface Creating<Client> {
  readonly transact: Transact<Client>
  readonly leases: Leases<Client>
  readonly queue: CreationQueue
  readonly closing: LockstepContext['closing']
  readonly onDuplicate: OnDuplicate
}

/** Finds a thing, or creates it outside the database: under a lease, in steps that the next caller can take over. */
export async function onceExternal<Value, Pending, Outcome, Client>(
  creating: Creating<Client>,
  key: Key,
  options: OnceExternalOptions<Value, Pending, Outcome, Client>,
): Promise<OnceResult<Value>> {
  checkKey(key)
  checkOptions('onceExternal()', options, ONCE_EXTERNAL_OPTIONS)
  checkFunctions(key, options)
  if (isInsideTransaction()) throw calledInside(key)
  const { signal } = options
  const waitMs = checkWaitMs(options.waitMs, DEFAULT_WAIT_MS)
  let begunTwice = false
  for (let losses = 1; ; losses++) {
    const budget = new WaitBudget(waitMs, signal, creating.closing)
    let result: OnceResult<Value> | undefined
    let turn: Turn | undefined
    try {
      const found = await lookOrTurn(creating, key, budget, options, (given) => (turn = given))
      if (found !== undefined) {
        turn?.end('done')
        return found
      }
      const lease = leaseOf(options, turn === undefined ? 0 : budget.remainingMs())
      const waited = !budget.triesOnce
      return await creating.leases.runAfter({ waited }, key, lease, async (held) => {
        // Another caller of this process can have the lease now, whatever this one is waiting for.
        onAbort(held.signal, () => turn?.end('open'))
        result = await createUnder(held, options)
        turn?.end('done')
        return result
      })
    } catch (error) {
      // A caller that does not take the lease has begun it: that can be found now. If not, it was about something else.
      if (error instanceof BegunTwiceError) {
        if (begunTwice) throw error.cause
        begunTwice = true
        creating.onDuplicate(key, 'a unique index refused what onceExternal() wanted to begin')
        continue
      }
      // Lost after the last transaction had committed: it is done all the same.
      if (error instanceof LeaseLostError && result !== undefined) return result
      // Another caller creates it: the result is what this caller wants.
      if (!(error instanceof LeaseLostError) || error.reason === 'closed' || losses >= MAX_LOSSES) {
        throw afterTheWait(error, budget)
      }
    } finally {
      turn?.end('open')
    }
  }
}

/** The turn of a caller that waits for no other, and that no other waits for. */
const EVERYBODYS: Turn = { end: () => undefined }

/** A unique index refused the beginning. */
class BegunTwiceError extends Error {}

/**
 * Looks for the thing, which needs no lease, and waits while another caller of this process is at it. Returns what it found, or nothing if this
 * caller has to create it: then it has the turn, or the wait budget is over.
 */
async function lookOrTurn<Value, Pending, Outcome, Client>(
  { transact, leases, queue }: Creating<Client>,
  key: Key,
  budget: WaitBudget,
  options: OnceExternalOptions<Value, Pending, Outcome, Client>,
  take: (turn: Turn) => void,
): Promise<OnceResult<Value> | undefined> {
  const { find, signal, holder } = options
  let hasTurn = false
  for (;;) {
    const waitMs = budget.leftMs === Infinity ? false : Math.max(budget.leftMs, LOOK_MS)
    const found = await transact({ waitMs, ...(signal !== undefined && { signal }) }, (tx) => find(tx))
    if (isDone(found)) return { value: found.done as NonNullable<Value>, created: false }
    if (hasTurn) return undefined
    const admission = await leases.admit(key, budget)
    // The rollout lets all callers create at once, also those of one process.
    const turn = admission !== undefined && admission.mode !== 'on' ? EVERYBODYS : queue.begin(key)
    if (turn !== undefined) {
      take(turn)
      return undefined
    }
    // Only the database can say that it is held: without a turn, it is asked once.
    if (budget.over) return undefined
    const stopWatching = leases.watchWait(key, holder, admission)
    const woken = await queue.wait(key, budget).finally(stopWatching)
    if (woken === 'over') return undefined
    if (woken === 'done') continue
    take(woken)
    hasTurn = true
  }
}

function leaseOf(
  { ttlMs, signal, holder }: Pick<LeaseOptions, 'ttlMs' | 'signal' | 'holder'>,
  waitMs: number,
): LeaseOptions {
  return {
    waitMs: waitMs === Infinity ? false : Math.max(0, Math.ceil(waitMs)),
    ...(ttlMs === undefined ? {} : { ttlMs }),
    ...(signal === undefined ? {} : { signal }),
    ...(holder === undefined ? {} : { holder }),
  }
}

/** A caller that waited for others of its process asked only at the end, but it did wait. */
function afterTheWait(error: unknown, budget: WaitBudget): unknown {
  if (!(error instanceof LeaseHeldError) || error.waitedMs > 0 || budget.triesOnce) return error
  const { advice, keys, holder, since, leftMs } = error
  const waitedMs = budget.waitedMs
  const message = `${error.message} The call waited ${Math.round(waitedMs)} ms.`
  return new LeaseHeldError(message, { advice, keys, holder, since, leftMs, waitedMs })
}

async function createUnder<Value, Pending, Outcome, Client>(
  lease: Lease<Client>,
  { find, begin, act, finish, abandon }: OnceExternalOptions<Value, Pending, Outcome, Client>,
): Promise<OnceResult<Value>> {
  const start = await lease
    .transaction({}, async (tx) => {
      const found = await find(tx)
      if (found !== undefined && found !== null) return { found, takenOver: true }
      return { found: { pending: await begin(tx) }, takenOver: false }
    })
    .catch((error: unknown) => {
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
