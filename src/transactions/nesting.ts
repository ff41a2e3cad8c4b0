import { AsyncLocalStorage } from 'node:async_hooks'
import { NestedTransaction } from '../errors.ts'
import { Patience } from '../locks/index.ts'
import { patiently } from './connections.ts'
import type { Grounds } from './grounds.ts'
import type { TransactionPlan } from './options.ts'
import { outsideSavepoints } from './scope.ts'
import type { OpenTransaction } from './transaction.ts'

/** A transaction that the current code runs in. */
export interface Frame {
  readonly grounds: Grounds
  readonly tx: OpenTransaction
  /** The call that opened it: its locks are the ones that are held. */
  readonly plan: TransactionPlan
  readonly outer?: Frame | undefined
}

/** One for all Locksteps of a process: two of them on one database could wait for each other through one caller. */
const frames = new AsyncLocalStorage<Frame | undefined>()

/** The innermost frame that is still open: a job that starts itself anew would else make an endless chain of ended ones. */
function openFrame(): Frame | undefined {
  let frame = frames.getStore()
  while (frame !== undefined && frame.tx.ended) frame = frame.outer
  return frame
}

/** Runs the function inside the frame. */
export function runInFrame<T>(frame: Frame, fn: () => Promise<T>): Promise<T> {
  const { grounds, tx, plan } = frame
  return frames.run({ grounds, tx, plan, outer: openFrame() }, fn)
}

/** Whether the calling code runs in a transaction of any Lockstep. */
export function isInsideTransaction(): boolean {
  return openFrame() !== undefined
}

/** Runs the function as if it were called from outside of every transaction: for work that the caller only sets off. */
export function outsideTransactions(fn: () => void): void {
  frames.run(undefined, () => outsideSavepoints(fn))
}

/** The transaction that a call has to join, if any. Throws where it would have to wait for the code that it is called from. */
export function frameToJoin(grounds: Grounds, plan: TransactionPlan): Frame | undefined {
  for (let frame = frames.getStore(); frame !== undefined; frame = frame.outer) {
    if (frame.tx.ended || frame.grounds !== grounds) continue
    refuseUnlessCovered(frame, plan)
    return frame
  }
  return undefined
}

/** Refuses locks that an outer transaction holds through another Lockstep on the same database. */
export async function refuseWaitingForSelf(grounds: Grounds, plan: TransactionPlan): Promise<void> {
  for (let frame = frames.getStore(); frame !== undefined; frame = frame.outer) {
    if (frame.tx.ended) continue
    const held = new Map(frame.plan.locks.map((lock) => [lock.id, lock]))
    const clash = plan.locks.find((lock) => {
      const outer = held.get(lock.id)
      return outer !== undefined && !(outer.shared && lock.shared)
    })
    if (clash === undefined) continue
    // Asking needs a connection, and the outer transaction may have the last one.
    const patience = new Patience(plan.waitMs, plan.signal, plan.closing)
    if (!(await patiently(onSameDatabase(grounds, frame.grounds), patience, plan.locks))) continue
    throw new NestedTransaction(`The lock on ${clash.key} is held by the transaction that this call is made from.`, {
      advice: 'It would wait for itself. Use the outer transaction, or the same Lockstep, which joins it.',
      keys: [clash.key],
    })
  }
}

async function onSameDatabase(one: Grounds, other: Grounds): Promise<boolean> {
  if (one.pool === other.pool) return true
  const [here, there] = await Promise.all([one.ready(), other.ready()])
  return (
    here.incarnation.system === there.incarnation.system && here.incarnation.database === there.incarnation.database
  )
}

function refuseUnlessCovered(frame: Frame, plan: TransactionPlan): void {
  const held = new Map(frame.plan.declared.map((lock) => [lock.id, lock]))
  const missing = plan.declared.filter((lock) => {
    const outer = held.get(lock.id)
    return outer === undefined || (outer.shared && !lock.shared)
  })
  const [first] = missing
  if (first !== undefined) {
    const upgrade = held.has(first.id)
    throw new NestedTransaction(
      upgrade
        ? `The inner transaction wants ${first.key} exclusively, which the outer one holds shared.`
        : `The inner transaction wants ${missing.map((lock) => lock.key).join(', ')}, which the outer one does not hold.`,
      {
        advice:
          'Declare every lock in the outermost transaction: taken later, it would come after the first read and out of order.',
        keys: missing.map((lock) => lock.key),
      },
    )
  }
  if (plan.isolationStated && plan.isolation !== frame.plan.isolation) {
    throw new NestedTransaction(
      `The inner transaction wants ${plan.isolation}, the outer one is ${frame.plan.isolation}.`,
      {
        advice: 'Give the outermost transaction the isolation that its parts need.',
        keys: plan.keys,
      },
    )
  }
}
