import { ConnectionLostError, LockTimeoutError, QueueFullError, TransactionEndedEarlyError } from '../errors.ts'
import type { Ticket, WaitBudget } from '../locks/index.ts'
import {
  lockAbandoned,
  lockAcquired,
  lockContended,
  lockRefused,
  lockReleased,
  lockRequested,
  lockTimedOut,
} from '../observe/index.ts'
import { meansConnectionLost, type Pending } from '../postgres/index.ts'
import type { Attempt } from './attemptResult.ts'
import { afterCommitFailed, giveUp, notCommitted, undo } from './ending.ts'
import type { LockstepContext } from './lockstepContext.ts'
import { runInFrame } from './frames.ts'
import { explainWait } from './nesting.ts'
import { open } from './open.ts'
import type { TransactionPlan } from './options.ts'
import type { Outcome } from './outcome.ts'
import { OpenTransaction, withParts } from './transaction.ts'
import type { Transaction } from './transactionInterface.ts'
import { checkSame } from './transactions.sql.ts'
import { watchBackend } from './watchBackend.ts'
import { watchWait } from './waitWatch.ts'

/** What a transaction runs. */
export type Body<T> = (tx: Transaction) => Promise<T>

/**
 * Waits for the locks, runs the function and commits, once. One function from the queue to COMMIT; the other
 * outcomes have functions of their own, below.
 */
export async function attemptOnce<T>(
  context: LockstepContext,
  plan: TransactionPlan,
  fn: Body<T>,
  attempt: number,
  budget: WaitBudget,
): Promise<Attempt<T>> {
  const locked = plan.locks.length > 0
  if (locked && lockRequested.hasSubscribers) lockRequested.publish(named(context, plan))
  let ticket: Ticket | undefined
  const unwatch = locked ? watchWait(context, plan, budget) : undefined
  try {
    if (budget.aborted) throw budget.failure('process', plan.locks)
    if (plan.source?.overdue === true) await plan.source.leave()
    if (locked) {
      ticket = context.queue.tryEnter(plan.locks)
      // A caller before us in this process waits for what our session keeps.
      if (ticket === undefined) await plan.source?.leave()
      ticket ??= await waitInProcess(context, plan, budget)
    }
    const opened = await open(context, plan, budget, ticket?.waited ?? false)
    unwatch?.()
    ticket?.confirm()
    const acquiredAt = performance.now()
    // Written out: spreading the names takes longer than telling them.
    const { keys, sharedKeys } = plan
    if (locked && lockAcquired.hasSubscribers) {
      const { contended } = opened
      lockAcquired.publish({ schema: context.schema, keys, sharedKeys, waitMs: budget.waitedMs, contended, attempt })
    }
    const { connection, trace } = opened
    const { silence } = context
    const { isolation, waitMs: turnMs, closing: closes } = plan
    const { answers } = opened
    const setting = { isolation, context, plan, answers, waitMs: turnMs, closing: closes }
    const tx = new OpenTransaction(connection, setting)
    let result: Attempt<T>
    let value: T | undefined
    let sent = false
    let pending: Pending | undefined
    try {
      value = await runInFrame({ context, tx, plan }, () => fn(withParts(tx)))
      if (tx.settling !== undefined) await tx.settling
      const closing = tx.isComplete && !connection.lost ? tx.closing() : undefined
      const { work } = tx
      tx.end()
      if (closing === undefined) {
        result = await giveUp(context, plan, opened, tx)
      } else {
        // What goes before COMMIT may wait for others, for as long as that takes: then it is looked whether the server is still at it.
        pending = closing.length === 0 ? silence.start(connection) : watchBackend(context, connection, trace)
        sent = true
        // What the server process may have forgotten can only be found out by failing: not where there is no other try.
        const answer = await connection.commit(
          plan.attempts > 1 ? closing : closing.map((statement) => ({ ...statement, recurs: false })),
          // Without the client, no code can have ended it: through tx.query() goes one statement at a time, whose first word is
          // looked at, and CALL and DO cannot commit inside a transaction block (tried on PostgreSQL 18).
          tx.handedOut ? checkSame(opened.mark, trace !== undefined) : undefined,
        )
        if (answer.failure === undefined && answer.command !== 'ROLLBACK' && answer.endedEarly !== true) {
          connection.release()
          if (work !== undefined) for (const each of work) each.committed()
          result = { end: 'committed', value }
        } else {
          result = await notCommitted(context, plan, opened, tx, answer)
        }
      }
    } catch (error) {
      result = sent
        ? await afterCommitFailed(context, opened, tx, value as T, error)
        : await undo(context, plan, opened, tx, error)
    } finally {
      if (pending !== undefined) silence.stop(pending)
    }
    if (locked && lockReleased.hasSubscribers) {
      const holdMs = performance.now() - acquiredAt
      lockReleased.publish({ schema: context.schema, keys, sharedKeys, holdMs, outcome: outcomeOf(result) })
    }
    return result
  } catch (caught) {
    const error = caught instanceof LockTimeoutError ? explainWait(context, plan, caught) : caught
    if (locked) reportFailedWait(context, plan, budget, error)
    const lost = error instanceof ConnectionLostError || meansConnectionLost(error)
    return { end: 'failed', error, lost, trace: undefined, neverRan: true }
  } finally {
    unwatch?.()
    ticket?.release()
  }
}

async function waitInProcess(context: LockstepContext, plan: TransactionPlan, budget: WaitBudget): Promise<Ticket> {
  if (lockContended.hasSubscribers) lockContended.publish({ ...named(context, plan), where: 'process' })
  const ticket = budget.triesOnce ? undefined : await context.queue.enter(plan.locks, budget)
  if (ticket !== undefined) return ticket
  const holders = plan.locks.map((lock) => ({ where: 'process' as const, key: lock.key }))
  throw budget.failure('process', plan.locks, holders)
}

function named(
  context: LockstepContext,
  plan: TransactionPlan,
): { schema: string; keys: readonly string[]; sharedKeys: readonly string[] } {
  return { schema: context.schema, keys: plan.keys, sharedKeys: plan.sharedKeys }
}

function outcomeOf(result: Attempt<unknown>): Outcome {
  if (result.end === 'committed') return 'committed'
  if (result.end === 'uncertain') return 'unknown'
  return result.error instanceof TransactionEndedEarlyError ? result.error.outcome : 'rolledBack'
}

function reportFailedWait(context: LockstepContext, plan: TransactionPlan, budget: WaitBudget, error: unknown): void {
  if (error instanceof LockTimeoutError) {
    if (!lockTimedOut.hasSubscribers) return
    const { waitedMs, waitedFor, holders } = error
    // Without a connection nothing was tried, however little it would have waited.
    const noWait = budget.triesOnce && waitedFor !== 'connection'
    lockTimedOut.publish({ ...named(context, plan), noWait, waitedMs, waitedFor, holders })
  } else if (error instanceof QueueFullError) {
    if (lockRefused.hasSubscribers) lockRefused.publish({ ...named(context, plan), waiting: error.waiting })
  } else if (budget.aborted && lockAbandoned.hasSubscribers) {
    lockAbandoned.publish({ ...named(context, plan), waitedMs: budget.waitedMs })
  }
}
