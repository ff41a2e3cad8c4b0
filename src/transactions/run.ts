import { setTimeout as sleep } from 'node:timers/promises'
import {
  CommitOutcomeUnknown,
  ConnectionLost,
  LockstepError,
  type LockstepErrorCode,
  LockTimeout,
  RetriesExhausted,
  TransactionRolledBack,
} from '../errors.ts'
import { closedError, Patience, type RolloutSource, type Ticket } from '../locks/index.ts'
import {
  lockAbandoned,
  lockAcquired,
  lockContended,
  lockReleased,
  lockRequested,
  lockTimedOut,
  transactionRetried,
} from '../observe/index.ts'
import {
  codeOf,
  IN_FAILED_TRANSACTION,
  isSqlState,
  meansConnectionLost,
  meansSessionTimedOut,
} from '../postgres/index.ts'
import { isStillAnswering, lastWords, patiently, rollBack } from './connections.ts'
import type { Grounds } from './grounds.ts'
import { frameToJoin, isInsideTransaction, refuseWaitingForSelf, runInFrame } from './nesting.ts'
import { open, type Opened, type Trace } from './open.ts'
import type { TransactionPlan } from './options.ts'
import { type Outcome, resolveCommit, resolveOutcome } from './outcome.ts'
import { judge, pauseMs } from './retry.ts'
import { OpenTransaction, type Transaction } from './transaction.ts'
import { rollOut } from './rollOut.ts'
import { watchBackend } from './watchBackend.ts'
import { watchWait } from './waitWatch.ts'

type Body<T> = (tx: Transaction) => Promise<T>

/** How an attempt ended. `failed` certainly wrote nothing; `uncertain` lost its connection after COMMIT was sent. */
type Attempt<T> =
  | { readonly end: 'committed'; readonly value: T }
  | { readonly end: 'failed'; readonly error: unknown; readonly lost: boolean; readonly trace: Trace | undefined }
  | { readonly end: 'uncertain'; readonly value: T; readonly error: unknown; readonly trace: Trace | undefined }

/** Runs the function in a transaction with its locks, and again where that can help. */
export function runTransaction<T>(grounds: Grounds, declared: TransactionPlan, fn: Body<T>): Promise<T> {
  const { rollout } = grounds
  return rollout === undefined ? runAttempts(grounds, declared, fn) : runRolledOut(grounds, rollout, declared, fn)
}

/** The same with only some of the keys locked. */
async function runRolledOut<T>(
  grounds: Grounds,
  rollout: RolloutSource,
  declared: TransactionPlan,
  fn: Body<T>,
): Promise<T> {
  const patience = new Patience(declared.waitMs, declared.signal, declared.closing)
  const young = declared.locks.length > 0 ? rollout.freshen() : undefined
  if (young !== undefined) {
    await declared.stay?.leave()
    await patiently(young, patience, declared.locks)
  }
  const plan = rollOut(grounds, declared)
  const { trigger } = grounds
  if (trigger === undefined || plan.locks.length === 0) return runAttempts(grounds, plan, fn)
  const keys = plan.locks.map((lock) => lock.key)
  try {
    const value = await runAttempts(grounds, plan, fn)
    trigger.sawEnd(keys, false)
    return value
  } catch (error) {
    trigger.sawEnd(keys, error instanceof LockstepError && HARM.has(error.code))
    throw error
  }
}

/** Failures that locking may have brought about. */
const HARM: ReadonlySet<LockstepErrorCode> = new Set([
  'LOCKSTEP_LOCK_TIMEOUT',
  'LOCKSTEP_RETRIES_EXHAUSTED',
  'LOCKSTEP_CONNECTION_LOST',
  'LOCKSTEP_COMMIT_OUTCOME_UNKNOWN',
])

async function runAttempts<T>(grounds: Grounds, plan: TransactionPlan, fn: Body<T>): Promise<T> {
  const outer = frameToJoin(grounds, plan)
  if (outer !== undefined) return outer.tx.nest((tx) => runInFrame({ ...outer, tx }, () => fn(tx)))
  if (plan.closing.closed) throw closedError(plan.allKeys)
  if (plan.locks.length > 0 && isInsideTransaction()) await refuseWaitingForSelf(grounds, plan)
  for (let attempt = 1; ; attempt++) {
    const result = await attemptOnce(grounds, plan, fn, attempt)
    if (result.end === 'committed') return result.value
    if (result.end === 'uncertain') {
      const outcome = result.trace === undefined ? 'unknown' : await resolveCommit(grounds, plan, result.trace)
      if (outcome === 'committed') return result.value
      if (outcome === 'unknown') throw outcomeUnknown(plan, result.error)
    } else if (result.lost && result.trace !== undefined && attempt < plan.attempts) {
      // The server may not have noticed yet, and its dead transaction would hold the lock against the next attempt.
      await resolveOutcome(grounds, result.trace)
    }
    const lost = result.end === 'uncertain' || result.lost
    const { verdict, reason } =
      result.end === 'uncertain' && !meansSessionTimedOut(result.error)
        ? { verdict: 'connection' as const, reason: codeOf(result.error) }
        : judge(result.error, lost)
    if (verdict === 'final') throw result.error
    if (attempt >= plan.attempts || plan.closing.closed) throw exhausted(plan, attempt, result.error, verdict)
    await plan.stay?.leave()
    const delayMs = pauseMs(verdict, attempt)
    if (transactionRetried.hasSubscribers) {
      transactionRetried.publish({
        schema: grounds.schema,
        keys: plan.keys,
        attempt,
        delayMs,
        reason,
        error: result.error,
      })
    }
    await sleep(delayMs)
  }
}

async function attemptOnce<T>(
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
    const result = await runOpened(grounds, plan, fn, opened)
    if (locked && lockReleased.hasSubscribers) {
      const holdMs = performance.now() - acquiredAt
      lockReleased.publish({ schema: grounds.schema, keys, sharedKeys, holdMs, outcome: outcomeOf(result.end) })
    }
    return result
  } catch (error) {
    if (locked) reportFailedWait(grounds, plan, patience, error)
    return {
      end: 'failed',
      error,
      lost: error instanceof ConnectionLost || meansConnectionLost(error),
      trace: undefined,
    }
  } finally {
    unwatch?.()
    ticket?.release()
  }
}

async function waitInProcess(grounds: Grounds, plan: TransactionPlan, patience: Patience): Promise<Ticket> {
  if (lockContended.hasSubscribers) lockContended.publish({ ...named(grounds, plan), where: 'process' })
  const ticket = patience.asksOnce ? undefined : await grounds.queue.enter(plan.locks, patience)
  if (ticket !== undefined) return ticket
  const holders = plan.locks.map((lock) => ({ where: 'process' as const, key: lock.key }))
  throw patience.failure('process', plan.locks, holders)
}

async function runOpened<T>(grounds: Grounds, plan: TransactionPlan, fn: Body<T>, opened: Opened): Promise<Attempt<T>> {
  const { connection, trace } = opened
  const { enqueuing } = grounds
  const { isolation } = plan
  const tx = new OpenTransaction(connection, { isolation, enqueuing, numbers: opened.numbers })
  let value: T
  try {
    value = await runInFrame({ grounds, tx, plan }, () => fn(tx))
  } catch (error) {
    tx.end()
    const { lost } = connection
    await rollBack(connection, grounds.silence)
    return { end: 'failed', error: tx.reasonOf(error), lost, trace }
  }
  const unfinished = tx.hasOpenSavepoint
  const closing = unfinished ? [] : tx.closing()
  const { eventCount } = tx
  tx.end()
  if (unfinished) {
    // Half of it may be done: committing that would be worse than nothing.
    await rollBack(connection, grounds.silence)
    return { end: 'failed', error: leftOpen(plan), lost: false, trace }
  }
  if (connection.lost) {
    const cause = (await lastWords(connection)) ?? tx.firstFailure
    connection.destroy()
    return { end: 'failed', error: connectionLost(plan, cause), lost: true, trace }
  }
  // What goes before COMMIT may wait for others, for as long as that takes: then it is looked whether the server is still at it.
  const pending = closing.length === 0 ? grounds.silence.start(connection) : watchBackend(grounds, connection, trace)
  try {
    // What the server process may have forgotten can only be found out by failing: not where there is no other try.
    const result = await connection.commit(
      plan.attempts > 1 ? closing : closing.map(({ text, values }) => ({ text, values })),
    )
    if (result.failure !== undefined) {
      const { lost } = connection
      await rollBack(connection, grounds.silence)
      // Something had failed before and was caught: that is the reason, as where COMMIT alone is answered with ROLLBACK.
      const caught = codeOf(result.failure) === IN_FAILED_TRANSACTION
      return { end: 'failed', error: caught ? rolledBack(plan, tx.firstFailure) : result.failure, lost, trace }
    }
    connection.release()
    if (result.command !== 'ROLLBACK') {
      if (eventCount > 0) enqueuing.committed()
      return { end: 'committed', value }
    }
    return { end: 'failed', error: rolledBack(plan, tx.firstFailure), lost: false, trace }
  } catch (error) {
    // A server that answers COMMIT with an error of its own has rolled back; one that is gone has not answered.
    // One that goes on answering was not at its end when it said so; a FATAL or PANIC can have any code.
    const rolledBackByServer = isSqlState(error) && (await isStillAnswering(connection, grounds.silence))
    if (rolledBackByServer) return { end: 'failed', error, lost: false, trace }
    connection.destroy()
    return { end: 'uncertain', value, error, trace }
  } finally {
    grounds.silence.stop(pending)
  }
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

function connectionLost(plan: TransactionPlan, cause: unknown): LockstepError {
  return new ConnectionLost('The connection was lost before COMMIT was sent.', {
    advice: 'Nothing was written; it can be done again.',
    keys: plan.allKeys,
    cause,
  })
}

function outcomeUnknown(plan: TransactionPlan, cause: unknown): LockstepError {
  return new CommitOutcomeUnknown(
    'The connection was lost in COMMIT, and the server can no longer say what became of it.',
    {
      advice: 'Look for the effect in the data before doing it again.',
      keys: plan.allKeys,
      cause,
    },
  )
}

function exhausted(
  plan: TransactionPlan,
  attempts: number,
  cause: unknown,
  verdict: 'conflict' | 'connection',
): unknown {
  if (attempts === 1)
    return verdict === 'connection' && !(cause instanceof LockstepError) ? connectionLost(plan, cause) : cause
  return new RetriesExhausted(`${attempts} attempts failed, the last with ${codeOf(cause) ?? 'a lost connection'}.`, {
    advice:
      verdict === 'conflict'
        ? 'Nothing was written. Declare a lock for what the transactions compete for, or make them shorter.'
        : 'Nothing was written. Look at the connection to the server.',
    keys: plan.allKeys,
    cause,
    attempts,
  })
}
