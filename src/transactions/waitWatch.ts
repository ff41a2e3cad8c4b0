import type { LockHolder } from '../errors.ts'
import { findHolders, type Patience } from '../locks/index.ts'
import { lockSlow } from '../observe/index.ts'
import { withConnection } from '../postgres/index.ts'
import type { Grounds } from './grounds.ts'
import type { TransactionPlan } from './options.ts'

/** Watches over one wait for as long as it lasts; undefined where nobody wants to know. The answer ends it. */
export function watchWait(grounds: Grounds, plan: TransactionPlan, patience: Patience): (() => void) | undefined {
  const { trigger, slowWaitMs } = grounds
  const minds = trigger !== undefined && trigger.waitMs !== Infinity
  if (!lockSlow.hasSubscribers && !minds) return undefined
  const slow = lockSlow.hasSubscribers
    ? setTimeout(() => void tellSlow(grounds, plan, patience), slowWaitMs)
    : undefined
  const long = minds
    ? setTimeout(() => trigger.sawLongWait(plan.locks.map((lock) => lock.key)), trigger.waitMs)
    : undefined
  return () => {
    clearTimeout(slow)
    clearTimeout(long)
  }
}

async function tellSlow(grounds: Grounds, plan: TransactionPlan, patience: Patience): Promise<void> {
  const { waitedMs, stage: waitedFor } = patience
  const holders = await whoIsInTheWay(grounds, plan, patience).catch(() => [])
  const { keys, sharedKeys } = plan
  if (lockSlow.hasSubscribers)
    lockSlow.publish({ schema: grounds.schema, keys, sharedKeys, waitedMs, waitedFor, holders })
}

async function whoIsInTheWay(grounds: Grounds, plan: TransactionPlan, patience: Patience): Promise<LockHolder[]> {
  if (patience.stage === 'process') return plan.locks.map((lock) => ({ where: 'process', key: lock.key }))
  // Whoever waits for a connection himself does not ask for another one just to tell of it.
  if (patience.stage !== 'server' || !grounds.driver.hasIdle()) return []
  return withConnection(grounds.driver, (connection) => findHolders(connection, plan.locks), grounds.silence)
}
