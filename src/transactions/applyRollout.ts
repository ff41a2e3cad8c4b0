import { decide, type LockRequest, type LockSet, type Shadow, shadowOf } from '../locks/index.ts'
import type { LockstepContext } from './lockstepContext.ts'
import type { TransactionPlan } from './options.ts'

/** The call as the rollout has it: only some of its keys locked, some observed. */
export function applyRollout(context: LockstepContext, plan: TransactionPlan): TransactionPlan {
  if (context.rollout === undefined) return plan
  const locks: LockRequest[] = []
  const shadows: Shadow[] = []
  for (const lock of plan.declared) {
    const decision = decide(context.rollout.ruleFor(lock.key).mode, lock)
    if (decision === 'on') locks.push(lock)
    else if (decision === 'observe') shadows.push(shadowOf(context.schema, lock))
  }
  // What parts lock is not subject to rollout.
  const all = [...locks, ...plan.partLocks]
  return { ...plan, keys: exclusiveKeys(locks), sharedKeys: sharedKeys(locks), locks: all, shadows }
}

/** The names of the locks that are exclusive, as events have them. */
export function exclusiveKeys(locks: LockSet): readonly string[] {
  return locks.filter((lock) => !lock.shared).map((lock) => lock.key)
}

export function sharedKeys(locks: LockSet): readonly string[] {
  return locks.filter((lock) => lock.shared).map((lock) => lock.key)
}
