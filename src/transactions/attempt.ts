import { ConnectionLost, LockstepError, LockTimeout, TransactionRolledBack } from '../errors.ts'
import { Patience, type Ticket } from '../locks/index.ts'
import {
  lockAbandoned,
  lockAcquired,
  lockContended,
  lockReleased,
  lockRequested,
  lockTimedOut,
} from '../observe/index.ts'
import {
  codeOf,
  type Commit,
  IN_FAILED_TRANSACTION,
  isSqlState,
  meansConnectionLost,
  type Pending,
} from '../postgres/index.ts'
import { isStillAnswering, lastWords, rollBack } from './connections.ts'
import type { Grounds } from './grounds.ts'
import { runInFrame } from './nesting.ts'
import { open, type Opened, type Trace } from './open.ts'
import type { TransactionPlan } from './options.ts'
import type { Outcome } from './outcome.ts'
import { OpenTransaction, type Transaction } from './transaction.ts'
import { watchBackend } from './watchBackend.ts'
import { watchWait } from './waitWatch.ts'

/** What a transaction runs. */
export type Body<T> = (tx: Transaction) => Promise<T>

/** How an attempt ended. `failed` certainly wrote nothing; `uncertain` lost its connection after COMMIT was sent. */
export type Attempt<T> =
  | { readonly end: 'committed'; readonly value: T }
  | Failure
  | { readonly end: 'uncertain'; readonly value: T; readonly error: unknown; readonly trace: Trace | undefined }

interface Failure {
  readonly end: 'failed'
  readonly error: unknown
  readonly lost: boolean
  readonly trace: Trace | undefined
}

/**
 * Waits for the locks, runs the function and commits, once. One function from the queue to COMMIT; what else can
 * become of it has functions of its own, below.
 */
export async function attemptOnce<T>(
  grounds: Grounds,
  plan: TransactionPlan,
  fn: Body<T>,
  attempt: number,
): Promise<Attempt<T>> {
  const patience = new Patience(attempt === 1 ? plan.firstWaitMs : plan.waitMs, plan.signal, plan.closing)
  const locked = plan.locks.length > 0
  if (locked && lockRequested.hasSubscribers) lockRequested.publish(named(grounds, plan))
  let ticket: Ticket | undefined
  const unwatch = locked ? watchWait(grounds, plan, patience) : undefined
  try {
    if (patience.aborted) throw patience.failure('process', plan.locks)
    if (plan.stay?.overdue === true) await plan.stay.leave()
    if (locked) {
      ticket = grounds.queue.tryEnter(plan.locks)
      // Whoever is before us in this process waits for what our session keeps.
      if (ticket === undefined) await plan.stay?.leave()
      ticket ??= await waitInProcess(grounds, plan, patience)
    }
    const opened = await open(grounds, plan, patience, ticket?.waited ?? false)
    unwatch?.()
    ticket?.confirm()
    const acquiredAt = performance.now()
    // Written out: spreading the names takes longer than telling them.
    const { keys, sharedKeys } = plan
    if (locked && lockAcquired.hasSubscribers) {
      const { contended } = opened
      lockAcquired.publish({ schema: grounds.schema, keys, sharedKeys, waitMs: patience.waitedMs, contended, attempt })
    }
    const { connection, trace } = opened
    const { enqueuing, silence } = grounds
    const { isolation } = plan
    const tx = new OpenTransaction(connection, { isolation, enqueuing, numbers: opened.numbers })
    let result: Attempt<T>
    let value: T | undefined
    let sent = false
    let pending: Pending | undefined
    try {
      value = await runInFrame({ grounds, tx, plan }, () => fn(tx))
      const closing = tx.hasOpenSavepoint || connection.lost ? undefined : tx.closing()
      const { eventCount } = tx
      tx.end()
      if (closing === undefined) {
        result = await giveUp(grounds, plan, opened, tx)
      } else {
        // What goes before COMMIT may wait for others, for as long as that takes: then it is looked whether the server is still at it.
        pending = closing.length === 0 ? silence.start(connection) : watchBackend(grounds, connection, trace)
        sent = true
        // What the server process may have forgotten can only be found out by failing: not where there is no other try.
        const answer = await connection.commit(
          plan.attempts > 1 ? closing : closing.map((statement) => ({ ...statement, recurs: false })),
        )
        if (answer.failure === undefined && answer.command !== 'ROLLBACK') {
          connection.release()
          if (eventCount > 0) enqueuing.committed()
          result = { end: 'committed', value }
        } else {
          result = await notCommitted(grounds, plan, opened, tx, answer)
        }
      }
    } catch (error) {
      result = sent
        ? await afterCommitFailed(grounds, opened, value as T, error)
        : await undo(grounds, opened, tx, error)
    } finally {
      if (pending !== undefined) silence.stop(pending)
    }
    if (locked && lockReleased.hasSubscribers) {
      const holdMs = performance.now() - acquiredAt
      lockReleased.publish({ schema: grounds.schema, keys, sharedKeys, holdMs, outcome: outcomeOf(result.end) })
    }
    return result
  } catch (error) {
    if (locked) reportFailedWait(grounds, plan, patience, error)
    const lost = error instanceof ConnectionLost || meansConnectionLost(error)
    return { end: 'failed', error, lost, trace: undefined }
  } finally {
    unwatch?.()
    ticket?.release()
  }
}

/** The function threw: what it did is rolled back. */
async function undo(
  { silence }: Grounds,
  { connection, trace }: Opened,
  tx: OpenTransaction,
  error: unknown,
): Promise<Failure> {
  tx.end()
  const { lost } = connection
  await rollBack(connection, silence)
  return { end: 'failed', error: tx.reasonOf(error), lost, trace }
}

/** The function returned, and there is nothing that could be committed. */
async function giveUp(
  { silence }: Grounds,
  plan: TransactionPlan,
  { connection, trace }: Opened,
  tx: OpenTransaction,
): Promise<Failure> {
  if (tx.hasOpenSavepoint) {
    // Half of it may be done: committing that would be worse than nothing.
    await rollBack(connection, silence)
    return { end: 'failed', error: leftOpen(plan), lost: false, trace }
  }
  const cause = (await lastWords(connection)) ?? tx.firstFailure
  connection.destroy()
  return { end: 'failed', error: connectionLost(plan, cause), lost: true, trace }
}

/** The server answered, and did not commit. */
async function notCommitted(
  { silence }: Grounds,
  plan: TransactionPlan,
  { connection, trace }: Opened,
  tx: OpenTransaction,
  { failure }: Commit,
): Promise<Failure> {
  if (failure === undefined) {
    connection.release()
    return { end: 'failed', error: rolledBack(plan, tx.firstFailure), lost: false, trace }
  }
  const { lost } = connection
  await rollBack(connection, silence)
  // Something had failed before and was caught: that is the reason, as where COMMIT alone is answered with ROLLBACK.
  const caught = codeOf(failure) === IN_FAILED_TRANSACTION
  return { end: 'failed', error: caught ? rolledBack(plan, tx.firstFailure) : failure, lost, trace }
}

/** A server that answers COMMIT with an error of its own has rolled back; one that is gone has not answered. */
async function afterCommitFailed<T>(
  { silence }: Grounds,
  { connection, trace }: Opened,
  value: T,
  error: unknown,
): Promise<Attempt<T>> {
  // One that goes on answering was not at its end when it said so; a FATAL or PANIC can have any code.
  const rolledBackByServer = isSqlState(error) && (await isStillAnswering(connection, silence))
  if (rolledBackByServer) return { end: 'failed', error, lost: false, trace }
  connection.destroy()
  return { end: 'uncertain', value, error, trace }
}

async function waitInProcess(grounds: Grounds, plan: TransactionPlan, patience: Patience): Promise<Ticket> {
  if (lockContended.hasSubscribers) lockContended.publish({ ...named(grounds, plan), where: 'process' })
  const ticket = patience.asksOnce ? undefined : await grounds.queue.enter(plan.locks, patience)
  if (ticket !== undefined) return ticket
  const holders = plan.locks.map((lock) => ({ where: 'process' as const, key: lock.key }))
  throw patience.failure('process', plan.locks, holders)
}

function named(
  grounds: Grounds,
  plan: TransactionPlan,
): { schema: string; keys: readonly string[]; sharedKeys: readonly string[] } {
  return { schema: grounds.schema, keys: plan.keys, sharedKeys: plan.sharedKeys }
}

function outcomeOf(end: Attempt<unknown>['end']): Outcome {
  if (end === 'committed') return 'committed'
  return end === 'failed' ? 'rolledBack' : 'unknown'
}

function reportFailedWait(grounds: Grounds, plan: TransactionPlan, patience: Patience, error: unknown): void {
  if (error instanceof LockTimeout) {
    if (!lockTimedOut.hasSubscribers) return
    const { waitedMs, waitedFor, holders } = error
    lockTimedOut.publish({ ...named(grounds, plan), waitedMs, waitedFor, holders })
  } else if (patience.aborted && lockAbandoned.hasSubscribers) {
    lockAbandoned.publish({ ...named(grounds, plan), waitedMs: patience.waitedMs })
  }
}

function rolledBack(plan: TransactionPlan, cause: unknown): LockstepError {
  return new TransactionRolledBack(
    'The server answered COMMIT with ROLLBACK: a statement had failed and its error was caught.',
    {
      advice:
        'Let errors of statements out of the function, or run the part that may fail in tx.savepoint(). Nothing was written.',
      keys: plan.allKeys,
      cause,
    },
  )
}

function leftOpen(plan: TransactionPlan): LockstepError {
  return new TransactionRolledBack(
    'The function returned while a savepoint or an inner transaction was still running.',
    {
      advice: 'Await every tx.savepoint() and every inner transaction() inside the function. Nothing was written.',
      keys: plan.allKeys,
    },
  )
}

/** The error for a connection that was lost while nothing could be written yet. */
export function connectionLost(plan: TransactionPlan, cause: unknown): LockstepError {
  return new ConnectionLost('The connection was lost before COMMIT was sent.', {
    advice: 'Nothing was written; it can be done again.',
    keys: plan.allKeys,
    cause,
  })
}
