import { AsyncLocalStorage } from 'node:async_hooks'
import type { LockstepContext } from './lockstepContext.ts'
import type { TransactionPlan } from './options.ts'
import type { Transaction } from './transactionInterface.ts'
import type { Isolation } from './isolation.ts'

/** What a frame needs of its transaction. */
export interface FramedTransaction {
  readonly isolation: Isolation
  readonly ended: boolean
  /** The same for a transaction and all savepoints in it. */
  readonly root: object
  readonly isJoined: boolean
  readonly client: unknown
  assertOpen(): void
  nest<T>(fn: (tx: FramedTransaction & Transaction) => Promise<T>): Promise<T>
}

/** A transaction, or a savepoint of one. */
export interface FrameScope {
  readonly context: LockstepContext
  readonly tx: FramedTransaction
  /** The call that opened the transaction: its locks are the ones that are held. */
  readonly plan: TransactionPlan
}

/** A transaction that the current code runs in, and what is around it. */
export interface Frame extends FrameScope {
  readonly outer: Frame | undefined
  /** Whether the code has left it, and all around it, by `detached()`. It then only explains what the code waits for. */
  readonly left: boolean
}

/** One for all Locksteps of a process: two of them on one database could wait for each other through one caller. */
const frames = new AsyncLocalStorage<Frame | undefined>()

/** The innermost frame that is still open: a job that starts itself again would otherwise make an endless chain of ended ones. */
function nearestFrame(): Frame | undefined {
  let left = false
  for (let frame = frames.getStore(); frame !== undefined; frame = frame.outer) {
    left ||= frame.left
    if (!frame.tx.ended) return left && !frame.left ? frameAt(frame, frame.outer, true) : frame
  }
  return undefined
}

/** Written out: spreading an object takes longer than all the rest of this. */
function frameAt({ context, tx, plan }: FrameScope, outer: Frame | undefined, left: boolean): Frame {
  return { context, tx, plan, outer, left }
}

/** Runs the function as code of the transaction. */
export function runInFrame<T>(scope: FrameScope, fn: () => T): T {
  return frames.run(frameAt(scope, nearestFrame(), false), fn)
}

/** Runs the function as if it were called from outside of every transaction; what it leaves is remembered to explain its waits. */
export function runLeavingFrames<T>(fn: () => T): T {
  const frame = nearestFrame()
  return frames.run(frame && frameAt(frame, frame.outer, true), fn)
}

/** Runs the function without any memory of where it was called from. */
export function runWithoutFrames<T>(fn: () => T): T {
  return frames.run(undefined, fn)
}

/** Whether the calling code runs in a transaction of any Lockstep. */
export function isInsideTransaction(): boolean {
  return openFrames().length > 0
}

const NONE: readonly Frame[] = []

/** The open transactions that the calling code runs in, the innermost first. */
export function openFrames(): readonly Frame[] {
  // Nearly every call is made outside of all transactions.
  return frames.getStore() === undefined ? NONE : collect(false)
}

/** The same with those that it has left. */
export function framesAround(): readonly Frame[] {
  return frames.getStore() === undefined ? NONE : collect(true)
}

function collect(alsoLeft: boolean): readonly Frame[] {
  const found: Frame[] = []
  for (let frame = frames.getStore(); frame !== undefined; frame = frame.outer) {
    if (frame.left && !alsoLeft) break
    if (!frame.tx.ended) found.push(frame)
  }
  return found
}
