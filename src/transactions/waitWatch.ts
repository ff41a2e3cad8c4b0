import type { LockHolder } from '../errors.ts'
import { findHolders, type WaitBudget } from '../locks/index.ts'
import { lockSlow } from '../observe/index.ts'
import { withConnection } from '../postgres/index.ts'
import type { LockstepContext } from './lockstepContext.ts'
import { outsideTransactions } from './nesting.ts'
import type { TransactionPlan } from './options.ts'

/** Something to be done if a wait lasts until then. */
interface Alarm {
  readonly at: number
  ring(): void
}

/** A wait may be reported as slow this much late. */
const LATE_MS = 20

/** One timer for all waits: one for each would be a good part of what a lock costs. */
const alarms = new Set<Alarm>()
let timer: NodeJS.Timeout | undefined

function look(): void {
  const now = performance.now()
  for (const alarm of alarms) {
    if (alarm.at > now) continue
    alarms.delete(alarm)
    alarm.ring()
  }
  timer = alarms.size === 0 ? undefined : setTimeout(look, LATE_MS).unref()
}

function setAlarm(afterMs: number, ring: () => void): Alarm {
  const alarm = { at: performance.now() + afterMs, ring }
  alarms.add(alarm)
  // It rings for all waits: a transaction in which the first began has nothing to do with it.
  timer ??= outsideTransactions(() => setTimeout(look, LATE_MS)).unref()
  return alarm
}

/** Watches over one wait for as long as it lasts; undefined without a listener. The answer ends it. */
export function watchWait(
  context: LockstepContext,
  plan: TransactionPlan,
  budget: WaitBudget,
): (() => void) | undefined {
  if (!lockSlow.hasSubscribers && plan.parts.length === 0) return undefined
  const set = plan.parts.flatMap(({ longWait }) =>
    longWait ? setAlarm(longWait.afterMs, () => longWait.report()) : [],
  )
  if (lockSlow.hasSubscribers) set.push(setAlarm(context.slowWaitMs, () => void reportSlowWait(context, plan, budget)))
  return () => set.forEach((alarm) => alarms.delete(alarm))
}

async function reportSlowWait(context: LockstepContext, plan: TransactionPlan, budget: WaitBudget): Promise<void> {
  const { waitedMs, stage: waitedFor } = budget
  const holders = await findBlockers(context, plan, budget).catch(() => [])
  const { keys, sharedKeys } = plan
  if (lockSlow.hasSubscribers)
    lockSlow.publish({ schema: context.schema, keys, sharedKeys, waitedMs, waitedFor, holders })
}

async function findBlockers(
  context: LockstepContext,
  plan: TransactionPlan,
  budget: WaitBudget,
): Promise<LockHolder[]> {
  if (budget.stage === 'process') return plan.locks.map((lock) => ({ where: 'process', key: lock.key }))
  // A caller that waits for a connection does not ask for another one just to report that.
  if (budget.stage !== 'server' || !context.driver.hasIdle()) return []
  return withConnection(context.driver, (connection) => findHolders(connection, plan.locks), context.silence)
}
