import {
  ConnectionLostError,
  type LockstepError,
  TransactionEndedEarlyError,
  TransactionRolledBackError,
} from '../errors.ts'
import {
  codeOf,
  type Commit,
  type Connection,
  findCause,
  IN_FAILED_TRANSACTION,
  isSqlState,
  READ_ONLY_TRANSACTION,
  type SilenceWatch,
} from '../postgres/index.ts'
import type { Attempt, Failure } from './attemptResult.ts'
import { isStillAnswering, lastServerError, rollBack } from './connections.ts'
import type { LockstepContext } from './lockstepContext.ts'
import type { Opened } from './open.ts'
import type { TransactionPlan } from './options.ts'
import { type Outcome, resolveOutcome } from './outcome.ts'
import { inDoubt, leftOpen } from './scope.ts'
import type { OpenTransaction } from './transaction.ts'
import { ROLLBACK, rollbackAndAsk, rollbackSame } from './transactions.sql.ts'

/** The function threw: what it did is rolled back. */
export async function undo(
  context: LockstepContext,
  plan: TransactionPlan,
  opened: Opened,
  tx: OpenTransaction,
  error: unknown,
): Promise<Failure> {
  tx.end()
  return rolledBackWith(context, plan, opened, tx, tx.reasonOf(error))
}

/** The function returned, and there is nothing that could be committed. */
export async function giveUp(
  context: LockstepContext,
  plan: TransactionPlan,
  opened: Opened,
  tx: OpenTransaction,
): Promise<Failure> {
  const { connection, trace } = opened
  if (!connection.lost) {
    // Half of it may be done: committing that would be worse than nothing.
    const error = tx.doubt === undefined ? leftOpen(plan.allKeys) : inDoubt(tx.doubt.error, plan.allKeys)
    return rolledBackWith(context, plan, opened, tx, error)
  }
  const cause = (await lastServerError(connection)) ?? tx.firstFailure
  connection.destroy()
  return { end: 'failed', error: connectionLost(plan, cause), lost: true, trace }
}

/** The server answered, and did not commit. */
export async function notCommitted(
  context: LockstepContext,
  plan: TransactionPlan,
  opened: Opened,
  tx: OpenTransaction,
  { failure, endedEarly: isEarly }: Commit,
): Promise<Failure> {
  const { connection, trace } = opened
  if (isEarly === true) {
    const outcome = (await rollBackHandedOut(context, opened, false)) ?? 'unknown'
    return { end: 'failed', error: endedEarly(plan, outcome, tx.firstFailure), lost: false, trace }
  }
  if (failure === undefined) {
    connection.release()
    return { end: 'failed', error: rolledBack(plan, tx.firstFailure), lost: false, trace }
  }
  // Something had failed before and was caught: that is the reason, as where COMMIT alone is answered with ROLLBACK.
  const caught = codeOf(failure) === IN_FAILED_TRANSACTION
  return rolledBackWith(context, plan, opened, tx, caught ? rolledBack(plan, tx.firstFailure) : failure)
}

/** A server that answers COMMIT with an error of its own has rolled back; one that is gone has not answered. */
export async function afterCommitFailed<T>(
  { silence }: LockstepContext,
  { connection, trace }: Opened,
  { work }: OpenTransaction,
  value: T,
  error: unknown,
): Promise<Attempt<T>> {
  // One that continues answering was not at its end when it said so; a FATAL or PANIC can have any code.
  const rolledBackByServer = isSqlState(error) && (await isStillAnswering(connection, silence))
  if (rolledBackByServer) return { end: 'failed', error, lost: false, trace }
  connection.destroy()
  return { end: 'uncertain', value, error, trace, work }
}

/** Rolls back what is open. Where a client was handed out, it looks whether that is still the transaction that was opened. */
async function rolledBackWith(
  context: LockstepContext,
  plan: TransactionPlan,
  opened: Opened,
  tx: OpenTransaction,
  error: unknown,
): Promise<Failure> {
  const { connection, trace } = opened
  const { lost } = connection
  let early: Outcome | undefined
  if (lost) connection.destroy()
  else if (tx.doubt !== undefined) early = await dropSession(context, opened)
  else if (tx.handedOut) early = await rollBackHandedOut(context, opened)
  else {
    // An old primary that only reads: another connection may lead to the new one.
    const onlyReads = findCause(error, (cause) => codeOf(cause) === READ_ONLY_TRANSACTION) !== undefined
    await rollBack(connection, context.silence, { keep: !onlyReads })
  }
  if (early === undefined) return { end: 'failed', error, lost, trace }
  return { end: 'failed', error: endedEarly(plan, early, error), lost: false, trace }
}

/**
 * Ends a session that may still be at a statement on which the driver has given up: until that is done it would hold the locks, and
 * ROLLBACK would wait behind it. The answer is defined if other code had committed.
 */
async function dropSession(context: LockstepContext, { connection, trace }: Opened): Promise<Outcome | undefined> {
  connection.destroy()
  const outcome = trace === undefined ? undefined : await resolveOutcome(context, trace)
  return outcome === 'committed' ? outcome : undefined
}

/**
 * Rolls back, and finds out whether it was the transaction that was opened, where that is not known to be false. The answer is defined
 * where it was not: its outcome.
 */
async function rollBackHandedOut(
  { silence }: LockstepContext,
  { connection, mark, trace }: Opened,
  known?: false,
): Promise<Outcome | undefined> {
  let same: boolean | undefined = known
  try {
    if (same === undefined) same = await isRolledBackSame(connection, silence, rollbackSame(mark, trace !== undefined))
    if (same !== true) {
      const asking = trace === undefined ? ROLLBACK : rollbackAndAsk(trace.xid)
      const status = (await silence.script(connection, asking)).at(-1)?.rows[0]?.['status']
      if (status === 'committed') return 'committed'
      if (same === false) return status === 'aborted' ? 'rolledBack' : 'unknown'
    }
    return undefined
  } catch {
    connection.destroy()
    return same === false ? 'unknown' : undefined
  } finally {
    connection.release()
  }
}

/** Undefined in a transaction that has failed: there nothing can be asked before ROLLBACK. */
async function isRolledBackSame(
  connection: Connection,
  silence: SilenceWatch,
  asking: string,
): Promise<boolean | undefined> {
  try {
    const [first] = await silence.script(connection, asking)
    return first?.rows[0]?.['same'] === 'true'
  } catch (error) {
    if (codeOf(error) === IN_FAILED_TRANSACTION) return undefined
    throw error
  }
}

/** The error for a transaction that other code had ended. */
export function endedEarly(plan: TransactionPlan, outcome: Outcome, cause: unknown): TransactionEndedEarlyError {
  const became = {
    committed: 'What was written before that is committed',
    rolledBack: 'What was written before that is rolled back',
    unknown: 'What was written before that may be committed',
  }[outcome]
  return new TransactionEndedEarlyError(
    `The transaction was ended before its function had ended, by a COMMIT or ROLLBACK that Lockstep did not send. ${became}; what came after it was not under the lock, and each statement of it may have been committed by itself.`,
    {
      advice:
        'Look at the data before doing it again. Find the code that ends transactions on the connection of tx.client, past its query().',
      keys: plan.allKeys,
      cause,
      outcome,
    },
  )
}

function rolledBack(plan: TransactionPlan, cause: unknown): LockstepError {
  return new TransactionRolledBackError(
    'The server answered COMMIT with ROLLBACK: a statement had failed and its error was caught.',
    {
      advice:
        'Let errors of statements out of the function, or run the part that may fail in tx.savepoint(). Nothing was written.',
      keys: plan.allKeys,
      cause,
    },
  )
}

/** The error for a connection that was lost while nothing could be written yet. */
export function connectionLost(plan: TransactionPlan, cause: unknown): LockstepError {
  return new ConnectionLostError('The connection was lost before COMMIT was sent.', {
    advice: 'Nothing was written; it can be done again.',
    keys: plan.allKeys,
    cause,
  })
}
