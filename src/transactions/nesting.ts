import { LockTimeoutError, NestedTransactionError } from '../errors.ts'
import { type LockSet, WaitBudget } from '../locks/index.ts'
import { withinBudget } from './connections.ts'
import { type Frame, framesAround, openFrames, runLeavingFrames, runWithoutFrames } from './frames.ts'
import type { LockstepContext } from './lockstepContext.ts'
import type { TransactionPlan } from './options.ts'
import { outsideSavepoints } from './scope.ts'

/** A call that opens a transaction, and what does the same as a part of an open one. */
export interface OpeningCall {
  readonly call: string
  readonly instead: string
}

const TRANSACTION: OpeningCall = { call: 'lockstep.transaction()', instead: 'tx.transaction()' }

/**
 * Refuses a call in the async context of an open transaction of the same Lockstep. Whether it belongs to that transaction cannot be
 * known: a job queue that requests share runs the job of one in the context of another.
 */
export function refuseInside(context: LockstepContext, keys: readonly string[], { call, instead } = TRANSACTION): void {
  for (const frame of openFrames()) {
    if (frame.context !== context) continue
    const on = keys.length === 0 ? '' : ` on ${keys.join(', ')}`
    throw new NestedTransactionError(
      `${call}${on} was called inside another transaction of the same Lockstep, ${heldBy(frame)}.`,
      {
        advice: `To be part of that transaction, use its \`tx\`: ${instead}. To be independent of it, as a job of a queue that requests share, run inside lockstep.detached(fn).`,
        keys,
      },
    )
  }
}

/**
 * Runs the function outside of every transaction that the calling code runs in. A wait in it for what the caller holds ends with its
 * `waitMs`, and its error says so.
 */
export function detached<T>(fn: () => T): T {
  return runLeavingFrames(() => outsideSavepoints(fn))
}

/** The same for the library's own background work, which the caller only sets off. */
export function outsideTransactions<T>(fn: () => T): T {
  return runWithoutFrames(() => outsideSavepoints(fn))
}

/** Refuses a call of another Lockstep that would certainly wait for the code that it is called from. */
export async function refuseWaitingForSelf(context: LockstepContext, plan: TransactionPlan): Promise<void> {
  const around = openFrames()
  refuseWithoutConnection(context, plan, around)
  for (const frame of around) {
    const clash = clashOf(frame, plan.locks)
    if (clash === undefined) continue
    // Asking needs a connection, and the outer transaction may have the last one.
    const budget = new WaitBudget(plan.waitMs, plan.signal, plan.closing)
    if (!(await withinBudget(onSameDatabase(context, frame.context), budget, plan.locks))) continue
    throw new NestedTransactionError(`The lock on ${clash} is held by the transaction that this call is made from.`, {
      advice: 'It would wait for itself. Use the `tx` of that transaction, or take the lock in one of the two only.',
      keys: [clash],
    })
  }
}

/** Where every connection of the pool belongs to a transaction that the code runs in, none comes free while it waits. */
function refuseWithoutConnection(context: LockstepContext, plan: TransactionPlan, around: readonly Frame[]): void {
  const holders = holdersOn(context, around)
  const { poolSize } = context.driver
  if (holders.length < poolSize) return
  throw new NestedTransactionError(
    `Every connection of the pool (${poolSize}) is held by a transaction that this call is made from: ${described(holders)}.`,
    {
      advice:
        'It would wait for itself. Use the `tx` of that transaction, or give the other Lockstep a pool of its own.',
      keys: plan.allKeys,
    },
  )
}

/** A wait that ended: where the caller itself holds what was waited for, the error says so. */
export function explainWait(
  context: LockstepContext,
  plan: TransactionPlan,
  error: LockTimeoutError,
): LockTimeoutError {
  const around = framesAround()
  if (around.length === 0) return error
  const reasons: string[] = []
  const clashes = around.filter((frame) => isOnSame(frame.context, context)).map((frame) => clashOf(frame, plan.locks))
  const clash = clashes.find((each) => each !== undefined)
  if (clash !== undefined) reasons.push(`${clash} is held by the transaction that this call was made from.`)
  const holders = holdersOn(context, around)
  if (error.waitedFor === 'connection' && holders.length > 0) {
    const count = `${holders.length} of the ${context.driver.poolSize} connections of this pool`
    reasons.push(`The code that this call was made from holds ${count}: ${described(holders)}.`)
  }
  if (reasons.length === 0) return error
  const { waitedMs, waitedFor, holders: known, keys } = error
  const what = error.message.slice(0, -error.advice.length).trimEnd()
  return new LockTimeoutError(`${what} ${reasons.join(' ')}`, {
    advice:
      'Nothing is held by this call. Do not wait for it inside that transaction: use its `tx`, or call this before or after it; for a connection, use a pool of its own.',
    keys,
    waitedMs,
    waitedFor,
    holders: known,
    cause: error.cause,
  })
}

/** The transactions that have a connection of this pool. Whose connection `join()` was given is not known. */
function holdersOn({ pool }: LockstepContext, around: readonly Frame[]): readonly Frame[] {
  const byRoot = new Map<object, Frame>()
  for (const frame of around) {
    if (frame.context.pool === pool && !frame.tx.isJoined) byRoot.set(frame.tx.root, frame)
  }
  return [...byRoot.values()]
}

/** The first of these locks that cannot be had while the frame's transaction is open. */
function clashOf(frame: Frame, wanted: LockSet): string | undefined {
  const held = new Map(frame.plan.locks.map((lock) => [lock.id, lock]))
  return wanted.find((lock) => {
    const outer = held.get(lock.id)
    return outer !== undefined && !(outer.shared && lock.shared)
  })?.key
}

function described(holders: readonly Frame[]): string {
  return holders.map((frame) => `a transaction ${heldBy(frame)}`).join('; ')
}

function heldBy({ plan }: Frame): string {
  return plan.allKeys.length === 0 ? 'which holds no lock' : `which holds ${plan.allKeys.join(', ')}`
}

async function onSameDatabase(one: LockstepContext, other: LockstepContext): Promise<boolean> {
  if (one.pool !== other.pool) await Promise.all([one.ready(), other.ready()])
  return isOnSame(one, other)
}

/** Whether both are known to be on one database. */
function isOnSame(
  { pool, readiness: here }: LockstepContext,
  { pool: otherPool, readiness: there }: LockstepContext,
): boolean {
  if (pool === otherPool) return true
  if (here === undefined || there === undefined) return false
  return (
    here.serverEpoch.system === there.serverEpoch.system && here.serverEpoch.database === there.serverEpoch.database
  )
}
